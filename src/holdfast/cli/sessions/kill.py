"""``holdfast kill``: end a background process."""

import contextlib
import signal
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, do_each, print_each
from holdfast.cli.lookup import find_process, find_session

if TYPE_CHECKING:
    from holdfast.errors import HoldfastError
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
    wanted = _signal(name)

    async def run(client: "Client") -> "tuple[list[str], list[HoldfastError]]":
        found = await find_session(client, session)

        async def tell(one: str) -> str:
            process = await find_process(found, one)
            await process.signal(wanted)
            return process.id

        return await do_each(processes, tell)

    told, failed = ask(run)
    return print_each({"signal": wanted, "processes": told}, told, failed)


def _signal(name: str) -> str:
    """Read a signal's name, with or without SIG, or its number."""
    with contextlib.suppress(ValueError):
        name = signal.Signals(int(name)).name
    return name.upper().removeprefix("SIG")
