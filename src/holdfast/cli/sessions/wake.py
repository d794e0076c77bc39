"""``holdfast wake``: wake a session before it is used."""

from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, print_result
from holdfast.cli.lookup import find_session

if TYPE_CHECKING:
    from holdfast.sdk import Client


@click.command("wake")
@click.argument("session", metavar="ID")
@click.option("--dead", is_flag=True, help="Also one whose sandbox has died, from the files that are left.")
@click.option("--files", is_flag=True, help="Give up memory that was kept, and start from the files.")
@connection
def command(session: str, dead: bool, files: bool) -> None:
    """Wake a session, and say what came back: its memory, or its files and shells."""

    async def run(client: "Client") -> tuple[str, str | None, bool]:
        found = await find_session(client, session)
        frozen = found.info.paused_as == "frozen"
        if dead or files:
            return found.id, await found.restore("files" if files else None), frozen
        return found.id, await found.wake(), frozen

    session_id, restored, frozen = ask(run)
    told = "; it was only frozen" if frozen else f"; restored: {restored}"
    print_result({"id": session_id, "restored": restored}, f"{session_id} is active" + (told if restored else ""))
