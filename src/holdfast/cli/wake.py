"""``holdfast wake``: wake a session before it is used."""

from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, find_session, show_json, wants_json

if TYPE_CHECKING:
    from holdfast.sdk import Client


@click.command("wake")
@click.argument("session", metavar="ID")
@click.option("--files", is_flag=True, help="Give up memory that was kept, and start from the files.")
@connection
def command(session: str, files: bool) -> None:
    """Wake a session, and say what came back: its memory, or its files and shells."""

    async def run(client: "Client") -> tuple[str, str | None]:
        found = await find_session(client, session)
        return found.id, await found.wake("files" if files else None)

    session_id, restored = ask(run)
    if wants_json():
        show_json({"id": session_id, "restored": restored})
    else:
        click.echo(f"{session_id} is active" + (f"; restored: {restored}" if restored else ""))
