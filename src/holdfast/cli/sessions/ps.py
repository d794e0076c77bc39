"""``holdfast ps``: the background processes of a session."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, harmless, show_table
from holdfast.cli.lookup import find_session
from holdfast.cli.sessions.ls import size, span

if TYPE_CHECKING:
    from holdfast.sdk import Client, ProcessInfo

HEADS = ("PROCESS", "STATUS", "AGE", "TTY", "OUTPUT", "COMMAND")
_COMMAND = 80


@click.command("ps")
@click.argument("session", metavar="ID")
@connection
def command(session: str) -> None:
    """List the background processes of a session: those of `exec --detach` and `exec --no-limit`, terminals, agents.

    `holdfast logs` shows what one has written, `holdfast kill` ends it, `holdfast sh --attach` goes on in a terminal.
    """

    async def look(client: "Client") -> "list[ProcessInfo]":
        return [one.info for one in await (await find_session(client, session)).processes.list()]

    found = ask(look)
    now = datetime.now(UTC)
    rows = [row(info, now) for info in found]
    show_table(HEADS, rows, "no processes; `holdfast exec --detach` starts one", data={"processes": found})


def row(info: "ProcessInfo", now: datetime) -> tuple[str, ...]:
    line = harmless(" ".join(info.cmd.split()))
    return (
        info.process_id,
        "running" if info.running else f"ended ({info.exit_code})",
        span((info.ended_at or now) - info.started_at),
        "yes" if info.pty else "-",
        size(info.output_bytes) or "-",
        line if len(line) <= _COMMAND else f"{line[: _COMMAND - 1]}…",
    )
