"""``holdfast usage``: what calls to models have cost."""

from datetime import datetime
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, harmless, show_table

if TYPE_CHECKING:
    from holdfast.sdk import Usage

WAYS = ("thread", "model", "day", "owner")
HEADS = ("CALLS", "INPUT", "CACHED", "OUTPUT", "USD")
DAY = click.DateTime(formats=["%Y-%m-%d"])


@click.command("usage")
@click.option("--by", type=click.Choice(WAYS), default="thread", show_default=True, help="What to have a line for.")
@click.option("--thread", "thread_key", metavar="KEY", help="Only of threads of this key, also of deleted ones.")
@click.option("--since", type=DAY, metavar="YYYY-MM-DD", help="From this day (UTC) on.")
@click.option("--until", type=DAY, metavar="YYYY-MM-DD", help="To the end of this day (UTC).")
@click.option("--owner", help="For admins: whose; else everybody's.")
@connection
def command(by: str, thread_key: str | None, since: datetime | None, until: datetime | None, owner: str | None) -> None:
    """Show what calls to models have cost: what cost most first, or the newest day."""
    report = ask(
        lambda client: client.usage(
            by, thread=thread_key, owner=owner, since=since and since.date(), until=until and until.date()
        )
    )
    rows = [(*_name(by, harmless(line.what), line.owner), *cells(line)) for line in report.lines]
    if len(rows) > 1:
        rows.append((*_name(by, "total", ""), *cells(report.total)))
    heads = (by.upper(), "OWNER") if by == "thread" else (by.upper(),)
    show_table(
        (*heads, *HEADS),
        rows,
        "no calls to models" + (f" in threads of the key {harmless(thread_key)}" if thread_key else " yet"),
        data=report,
    )


def _name(by: str, what: str, owner: str | None) -> tuple[str, ...]:
    return (what, owner or "-") if by == "thread" else (what,)


def cells(usage: "Usage") -> tuple[str, ...]:
    tokens = (usage.input_tokens, usage.cached_tokens, usage.output_tokens)
    return str(usage.calls), *(str(count) for count in tokens), f"{usage.cost_usd:.4f}"
