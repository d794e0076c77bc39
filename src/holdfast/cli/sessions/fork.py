"""``holdfast fork``: copy a session."""

from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, pairs, print_result
from holdfast.cli.lookup import find_session

if TYPE_CHECKING:
    from holdfast.sdk import Client, SessionInfo


@click.command("fork")
@click.argument("session", metavar="ID")
@click.option("--ttl", "ttl_seconds", type=click.IntRange(min=1), help="Seconds without use after which it ends.")
@click.option("--meta", multiple=True, metavar="NAME=VALUE", help="A note kept with it; may be repeated.")
@connection
def command(session: str, ttl_seconds: int | None, meta: tuple[str, ...]) -> None:
    """Copy a session as it is now, and print the copy's id. The original goes on, or sleeps on, as before."""
    notes = pairs(meta, "--meta")

    async def run(client: "Client") -> "SessionInfo":
        found = await find_session(client, session)
        return (await found.fork(metadata=notes or None, ttl_seconds=ttl_seconds)).info

    info = ask(run)
    print_result(info, info.id)
