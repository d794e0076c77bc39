"""``holdfast sleep``: put sessions to sleep."""

from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, find_session, show_json, wants_json

if TYPE_CHECKING:
    from holdfast.sdk import Client, Session


@click.command("sleep")
@click.argument("session", metavar="ID")
@click.option("--files", is_flag=True, help="Stop it and keep its files and shells; it then costs no memory.")
@connection
def command(session: str, files: bool) -> None:
    """Put a session to sleep: frozen in memory, or stopped. Any use wakes it.

    \b
    holdfast sleep ID
    holdfast sleep ID --files
    """

    async def run(client: "Client") -> "Session":
        found = await find_session(client, session)
        return await (found.hibernate() if files else found.pause())

    asleep = ask(run)
    if wants_json():
        show_json(asleep.info)
    else:
        click.echo(f"{asleep.id} is {asleep.status} ({asleep.info.paused_as})")
