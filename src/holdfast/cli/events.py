"""``holdfast events``: what happens to sessions."""

from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, show_json, wants_json
from holdfast.cli.lookup import find_session

if TYPE_CHECKING:
    from holdfast.sdk import Client, SessionEvent


@click.command("events")
@click.option("--after", type=click.IntRange(min=0), help="From the event after this number; else all that are kept.")
@click.option("--session", metavar="ID", help="Of this session only.")
@click.option("--kind", "kinds", multiple=True, help="Only these, such as error or destroyed; may be repeated.")
@click.option("--follow/--no-follow", default=True, help="Wait for what is yet to happen, or end.")
@connection
def command(after: int | None, session: str | None, kinds: tuple[str, ...], follow: bool) -> None:
    """Print what happens to sessions, one line per event; Ctrl-C ends it.

    With --json, each line is a JSON object.
    """
    as_json = wants_json()

    async def watch(client: "Client") -> None:
        only = (await find_session(client, session)).id if session else None
        async with aclosing(client.events(after, kinds=kinds or None, session_id=only, follow=follow)) as events:
            async for event in events:
                if as_json:
                    show_json(event)
                else:
                    click.echo(line(event))

    ask(watch)


def line(event: "SessionEvent") -> str:
    if event.at is None:
        return f"{event.seq}\t-\tgap\t-\tthe events up to here are no longer kept"
    why = [str(event.data[name]) for name in ("reason", "error") if event.data.get(name)]
    words = (str(event.seq), event.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), event.kind, str(event.session_id))
    return "\t".join((*words, ": ".join(why).replace("\t", " ").replace("\n", " "))).rstrip()
