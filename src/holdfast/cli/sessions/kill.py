"""``holdfast kill``: end a background process."""

import contextlib
import signal
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, report_all, show_json, wants_json
from holdfast.cli.lookup import find_process, find_session
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.sdk import Client


@click.command("kill")
@click.argument("session", metavar="ID")
@click.argument("processes", metavar="PROCESS...", nargs=-1, required=True)
@click.option("-s", "--signal", "name", default="TERM", show_default=True, help="Which signal: INT, KILL, 9, …")
@connection
def command(session: str, processes: tuple[str, ...], name: str) -> int:
    """Send a signal to background processes, each with its whole group. Its output stays readable.

    PROCESS is an id that `holdfast ps` shows, or its beginning or end.
    """
    told: list[str] = []
    failed: list[HoldfastError] = []
    wanted = _signal(name)

    async def run(client: "Client") -> None:
        found = await find_session(client, session)
        for one in processes:
            try:
                process = await find_process(found, one)
                await process.signal(wanted)
            except HoldfastError as error:  # one that fails does not spare the others
                failed.append(error)
            else:
                told.append(process.id)

    ask(run)
    if wants_json():
        show_json({"signal": wanted, "processes": told})
    else:
        for one in told:
            click.echo(one)
    report_all(failed)
    return 1 if failed else 0


def _signal(name: str) -> str:
    """By its name, with or without SIG, or by the number that people know it by."""
    with contextlib.suppress(ValueError):
        name = signal.Signals(int(name)).name
    return name.upper().removeprefix("SIG")
