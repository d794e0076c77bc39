"""``holdfast key``: who may use this daemon, and for what."""

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import ask, connection, print_result, show_table, wants_json, when

if TYPE_CHECKING:  # its module loads asyncio, and --help stays fast
    from holdfast.sdk.sessions.results import KeyInfo

SCOPES = ("read", "use", "admin")
HEADS = ("NAME", "SCOPE", "OWNER", "MAX SESSIONS", "CREATED", "LAST USED", "AT MOST")


@click.group("key")
def command() -> None:
    """Make, list and remove keys."""


@command.command("add")
@click.argument("name")
@click.option("--scope", type=click.Choice(SCOPES), required=True, help="What it may do; each may do more.")
@click.option("--max-sessions", type=click.IntRange(min=0), metavar="N", help="How many sessions at once.")
@click.option("--owner", metavar="NAME", help="Whose sessions it makes and sees; by default its own.")
@click.option("--max-cpus", type=click.FloatRange(min=0, min_open=True), metavar="N", help="For each session.")
@click.option("--max-memory-mb", type=click.IntRange(min=1), metavar="MB", help="For each session.")
@click.option("--max-pids", type=click.IntRange(min=1), metavar="N", help="For each session.")
@click.option("--max-disk-mb", type=click.IntRange(min=1), metavar="MB", help="For each session.")
@connection
def add(name: str, scope: str, **limits: Any) -> None:
    """Make a key and print it. It is shown only now: the daemon keeps a hash.

    \b
    read    look at sessions, results and files
    use     make sessions, use and destroy them
    admin   everything, in everybody's sessions; also keys and images
    """
    made = ask(lambda client: client.keys.add(name, scope, **limits))
    print_result(made, made.key)
    if not wants_json():
        click.echo("holdfast: keep it now; it cannot be shown again", err=True)


@command.command("ls")
@connection
def ls() -> None:
    """List keys. The daemon's own key, root, is not among them."""
    found = ask(lambda client: client.keys.list())
    rows = [
        (
            one.name,
            one.scope,
            one.owner,
            _number(one.max_sessions),
            when(one.created_at),
            when(one.last_used_at),
            _ceilings(one),
        )
        for one in found
    ]
    show_table(HEADS, rows, "no keys but root; `holdfast key add` makes one", data={"keys": found})


@command.command("rm")
@click.argument("name")
@connection
def rm(name: str) -> None:
    """Lock a key out, at once. Its sessions live on, and admins see them."""
    ask(lambda client: client.keys.remove(name))
    print_result({"removed": name}, name)


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _ceilings(key: "KeyInfo") -> str:
    """Return the most that each of its sessions may have, in the units of the options."""
    each = {"cpus": key.max_cpus, "memory": key.max_memory_mb, "pids": key.max_pids, "disk": key.max_disk_mb}
    return " ".join(f"{name}={value:.15g}" for name, value in each.items() if value is not None) or "-"
