"""``holdfast workspace``: directories that outlive sessions."""

import click

from holdfast.cli.admin.image import size
from holdfast.cli.common import ask, connection, show_json, show_table, wants_json

HEADS = ("NAME", "OWNER", "HELD BY", "SIZE", "CREATED", "LAST USED")


@click.group("workspace")
def command() -> None:
    """List and remove workspaces. `holdfast new --workspace NAME` makes one, or takes it up again."""


@command.command("ls")
@connection
def ls() -> None:
    """List workspaces, and who has them."""
    found = ask(lambda client: client.workspaces.list())
    if wants_json():
        show_json({"workspaces": found})
        return
    rows = [
        (
            one.name,
            one.owner,
            one.session_id or "-",
            size(one.size_bytes),
            one.created_at.strftime("%Y-%m-%d %H:%M"),
            one.last_used_at.strftime("%Y-%m-%d %H:%M"),
        )
        for one in found
    ]
    show_table(HEADS, rows, "no workspaces; `holdfast new --workspace NAME` makes one")


@command.command("rm")
@click.argument("name")
@connection
def rm(name: str) -> None:
    """Remove a workspace with all its files, by name or id. Refused while a session has it."""
    ask(lambda client: client.workspaces.remove(name))
    if wants_json():
        show_json({"removed": name})
    else:
        click.echo(name)
