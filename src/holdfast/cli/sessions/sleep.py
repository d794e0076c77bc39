"""``holdfast sleep``: put sessions to sleep."""

from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, print_result
from holdfast.cli.lookup import find_session

if TYPE_CHECKING:
    from typing import Literal

    from holdfast.sdk import Client, Session


@click.command("sleep")
@click.argument("session", metavar="ID")
@click.option("--files", "how", flag_value="files", help="Stop it and keep its files and shells.")
@click.option("--memory", "how", flag_value="memory", help="Stop it and keep all: its processes go on when it wakes.")
@connection
def command(session: str, how: 'Literal["memory", "files"] | None') -> None:
    """Put a session to sleep: frozen, or stopped, which costs no memory any more. Any use wakes it.

    \b
    holdfast sleep ID
    holdfast sleep ID --memory
    holdfast sleep ID --files
    """

    async def run(client: "Client") -> "Session":
        found = await find_session(client, session)
        return await (found.hibernate(how) if how else found.pause())

    asleep = ask(run)
    print_result(asleep.info, f"{asleep.id} is {asleep.status} ({asleep.info.paused_as})")
