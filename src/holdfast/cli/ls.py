"""``holdfast ls``: the sessions there are."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, show_json, show_table, wants_json

if TYPE_CHECKING:
    from holdfast.sdk import Client, SessionInfo

STATUSES = ("creating", "active", "pausing", "paused", "resuming", "destroying", "destroyed", "error")
HEADS = ("ID", "STATUS", "IMAGE", "DRIVER", "OWNER", "AGE", "EXPIRES IN", "CWD")


@click.command("ls")
@click.option("-a", "--all", "everything", is_flag=True, help="Also the destroyed ones.")
@click.option("--status", multiple=True, type=click.Choice(STATUSES), help="Only these; may be repeated.")
@connection
def command(everything: bool, status: tuple[str, ...]) -> None:
    """List sessions."""
    wanted = status or (STATUSES if everything else None)

    async def look(client: "Client") -> "list[SessionInfo]":
        return [session.info for session in await client.list_sessions(wanted)]

    found = ask(look)
    if wants_json():
        show_json({"sessions": found})
    else:
        now = datetime.now(UTC)
        show_table(HEADS, [row(info, now) for info in found], "no sessions; `holdfast new` makes one")


def row(info: "SessionInfo", now: datetime) -> tuple[str, ...]:
    status = f"{info.status} ({info.reason})" if info.reason else info.status
    ends = "-" if info.status == "destroyed" else span(info.expires_at - now)
    return info.id, status, info.image, info.driver, info.owner, span(now - info.created_at), ends, info.cwd


def span(length: timedelta) -> str:
    """A length of time in its two largest units."""
    seconds = max(0, int(length.total_seconds()))
    for size, unit, next_size, next_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= size:
            return f"{seconds // size}{unit}{seconds % size // next_size}{next_unit}"
    return f"{seconds}s"
