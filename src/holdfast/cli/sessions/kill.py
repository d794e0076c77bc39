"""``holdfast kill``: end a background process."""

from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, show_json, wants_json
from holdfast.cli.lookup import find_process, find_session

if TYPE_CHECKING:
    from holdfast.sdk import Client


@click.command("kill")
@click.argument("session", metavar="ID")
@click.argument("processes", metavar="PROCESS...", nargs=-1, required=True)
@click.option("-s", "--signal", "name", default="TERM", show_default=True, help="Which signal: INT, KILL, HUP, …")
@connection
def command(session: str, processes: tuple[str, ...], name: str) -> None:
    """Send a signal to background processes, each with its whole group. Its output stays readable.

    PROCESS is an id that `holdfast ps` shows, or its beginning or end.
    """
    told: list[str] = []

    async def run(client: "Client") -> None:
        found = await find_session(client, session)
        for one in processes:
            process = await find_process(found, one)
            await process.signal(name.upper().removeprefix("SIG"))
            told.append(process.id)

    ask(run)
    if wants_json():
        show_json({"signal": name, "processes": told})
    else:
        for one in told:
            click.echo(one)
