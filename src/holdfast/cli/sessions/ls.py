"""``holdfast ls``: the sessions there are."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, plain, show_table
from holdfast.cli.lookup import thread_keys

if TYPE_CHECKING:
    from holdfast.sdk import Client, SessionInfo, SessionStats

STATUSES = ("creating", "active", "pausing", "paused", "resuming", "destroying", "destroyed", "error")
HEADS = ("ID", "STATUS", "IMAGE", "DRIVER", "OWNER", "AGE", "EXPIRES IN", "CPU", "MEM", "DISK", "PROCS", "CWD")
LESS = ("DRIVER", "PROCS", "CPU", "DISK", "IMAGE", "OWNER", "CWD", "MEM", "WORKSPACE", "EXPIRES IN")
"""What goes first where a window has no room for all."""
FOR_EVER = timedelta(days=3650)
"""Sessions of threads end with these; the time that they have is only there because all have one."""


@click.command("ls")
@click.option("-a", "--all", "everything", is_flag=True, help="Also the destroyed ones.")
@click.option("--status", multiple=True, type=click.Choice(STATUSES), help="Only these; may be repeated.")
@connection
def command(everything: bool, status: tuple[str, ...]) -> None:
    """List sessions; those of threads with their keys, by which the other verbs know them, too."""
    wanted = status or (STATUSES if everything else None)

    async def look(client: "Client") -> "tuple[list[SessionInfo], dict[str, str]]":
        found = [session.info for session in await client.list_sessions(wanted, stats=True)]
        return found, await thread_keys(client) if found else {}

    found, threads = ask(look)
    data = {"sessions": [{**plain(info), "thread": threads.get(info.id)} for info in found]}
    now = datetime.now(UTC)
    rows = [row(info, now) for info in found]
    heads: tuple[str, ...] = HEADS
    if any(info.workspace for info in found):
        heads = (*heads, "WORKSPACE")
        rows = [(*cells, info.workspace or "-") for cells, info in zip(rows, found, strict=True)]
    if threads.keys() & {info.id for info in found}:
        heads = (*heads, "THREAD")
        rows = [(*cells, threads.get(info.id, "-")) for cells, info in zip(rows, found, strict=True)]
    show_table(heads, rows, "no sessions; `holdfast new` makes one", less=LESS, data=data)


def row(info: "SessionInfo", now: datetime) -> tuple[str, ...]:
    how = info.paused_as or info.reason
    status = f"{info.status} ({how})" if how else info.status
    ends = "-" if info.status == "destroyed" else expiry(info.expires_at - now)
    age = span(now - info.created_at)
    return info.id, status, info.image, info.driver, info.owner, age, ends, *used(info.stats), info.cwd


def expiry(left: timedelta) -> str:
    return "never" if left > FOR_EVER else span(left)


def used(stats: "SessionStats | None") -> tuple[str, str, str, str]:
    """Show CPU time, and of memory, disk and processes how much of how much; "-" is what is not known."""
    if stats is None:
        return "-", "-", "-", "-"
    return (
        "-" if stats.cpu_seconds is None else f"{stats.cpu_seconds:.1f}s",
        of(size(stats.memory_bytes), size(stats.memory_limit_bytes)),
        of(size(stats.disk_bytes), size(stats.disk_limit_bytes)),
        of(number(stats.processes), number(stats.processes_limit)),
    )


def of(amount: str | None, limit: str | None) -> str:
    if amount is None:
        return "-"
    return amount if limit is None else f"{amount}/{limit}"


def number(value: int | None) -> str | None:
    return None if value is None else str(value)


def size(count: int | None) -> str | None:
    """Show bytes in the largest unit that leaves a number before the point."""
    if count is None:
        return None
    amount = float(count)
    for unit in ("B", "K", "M", "G"):
        if amount < 1000 or unit == "G":
            break
        amount /= 1024
    return f"{amount:.0f}{unit}" if unit == "B" or amount >= 10 else f"{amount:.1f}{unit}"


def span(length: timedelta) -> str:
    """Show a length of time in its two largest units."""
    seconds = max(0, int(length.total_seconds()))
    for size, unit, next_size, next_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= size:
            return f"{seconds // size}{unit}{seconds % size // next_size}{next_unit}"
    return f"{seconds}s"
