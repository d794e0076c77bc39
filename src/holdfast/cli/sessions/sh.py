"""``holdfast sh``: a terminal in a session."""

import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, shell_line
from holdfast.cli.lookup import find_session

if TYPE_CHECKING:
    from holdfast.sdk import Client


@click.command("sh")
@click.argument("session", metavar="ID")
@click.argument("words", metavar="[-- CMD...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--attach", "process_id", metavar="PROCESS", help="Go on in a terminal that is open already.")
@click.option("--cwd", help="Where to begin.")
@connection
def command(session: str, words: tuple[str, ...], process_id: str | None, cwd: str | None) -> int:
    """Open a terminal in a session: a shell, or CMD. One word is a shell line, several are a command with its
    arguments, as for `holdfast exec`.

    Ctrl-] leaves it and lets the program run on; it also runs on if the connection is lost. Exits with the program's
    exit code.

    \b
    holdfast sh ID
    holdfast sh ID -- vim notes.txt
    holdfast sh ID -- bash -c 'echo "$HOME"; exec top'
    holdfast sh ID --attach prc_…
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("sh needs a terminal on both sides; `holdfast exec` runs a command without one")
    line = shell_line(words) if words else None

    async def run(client: "Client") -> int:
        found = await find_session(client, session)
        from holdfast.cli.terminal.screen import TerminalView  # brings in asyncio, which --help can do without

        return await TerminalView(found, line, cwd, process_id).run()

    return ask(run)
