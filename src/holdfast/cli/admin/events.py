"""``holdfast events``: what happens to sessions and threads."""

from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, one_line, print_result
from holdfast.cli.lookup import find_session

if TYPE_CHECKING:
    from holdfast.sdk import Client, SessionEvent


@click.command("events")
@click.option("--after", type=click.IntRange(min=0), help="From the event after this number; else all that are kept.")
@click.option("--session", metavar="ID", help="Of this session only.")
@click.option("--thread", metavar="KEY", help="Of this thread only.")
@click.option("--kind", "kinds", multiple=True, help="Only these, such as error or thread.turn_ended; may be repeated.")
@click.option("--follow/--no-follow", default=True, help="Wait for what is yet to happen, or end.")
@connection
def command(after: int | None, session: str | None, thread: str | None, kinds: tuple[str, ...], follow: bool) -> None:
    """Print what happens to sessions and threads, one line per event; Ctrl-C ends it.

    With --json, each line is a JSON object.
    """

    async def watch(client: "Client") -> None:
        only = (await find_session(client, session)).id if session else None
        found = client.events(after, kinds=kinds or None, session_id=only, thread=thread, follow=follow)
        async with aclosing(found) as events:
            async for event in events:
                print_result(event, line(event))

    ask(watch)


def line(event: "SessionEvent") -> str:
    if event.at is None:
        return f"{event.seq}\t-\tgap\t-\tthe events up to here are no longer kept"
    why = [_words(event.data[name]) for name in ("reason", "error", "text", "message") if event.data.get(name)]
    whose = event.thread_key or str(event.session_id)
    words = (str(event.seq), event.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), event.kind, whose)
    return "\t".join((*words, one_line(": ".join(why)))).rstrip()


def _words(told: object) -> str:
    """Of an error with a code, its message."""
    return str(told.get("message") or told.get("code")) if isinstance(told, dict) else str(told)
