"""``holdfast workspace``: directories that outlive sessions."""

import click

from holdfast.cli.admin.image import size
from holdfast.cli.common import ask, connection, print_result, show_table, when

HEADS = ("NAME", "OWNER", "HELD BY", "SIZE", "CREATED", "LAST USED")


@click.group("workspace")
def command() -> None:
    """List and remove workspaces. `holdfast new --workspace NAME` makes one, or takes it up again."""


@command.command("ls")
@connection
def ls() -> None:
    """List workspaces, and who has them."""
    found = ask(lambda client: client.workspaces.list())
    rows = [
        (
            one.name,
            one.owner,
            one.session_id or "-",
            size(one.size_bytes),
            when(one.created_at),
            when(one.last_used_at),
        )
        for one in found
    ]
    show_table(HEADS, rows, "no workspaces; `holdfast new --workspace NAME` makes one", data={"workspaces": found})


@command.command("rm")
@click.argument("name")
@connection
def rm(name: str) -> None:
    """Remove a workspace with all its files, by name or id. Refused while a session has it."""
    ask(lambda client: client.workspaces.remove(name))
    print_result({"removed": name}, name)
