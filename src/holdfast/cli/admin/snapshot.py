"""``holdfast snapshot``: what is kept of sessions, to start others from."""

from typing import TYPE_CHECKING

import click

from holdfast.cli.admin.image import size
from holdfast.cli.common import ask, connection, print_result, show_table, when
from holdfast.cli.lookup import find_session

if TYPE_CHECKING:
    from holdfast.sdk import Client, SnapshotInfo

HEADS = ("NAME", "STATUS", "KIND", "SIZE", "IMAGE", "OWNER", "SESSION", "CREATED")


@click.group("snapshot")
def command() -> None:
    """Take, list and remove snapshots. `holdfast new --snapshot NAME` starts from one."""


@command.command("create")
@click.argument("session", metavar="ID")
@click.argument("name", required=False)
@connection
def create(session: str, name: str | None) -> None:
    """Keep a session's files and shells as they are now, and print the snapshot's name. The session goes on."""

    async def run(client: "Client") -> "SnapshotInfo":
        return await (await find_session(client, session)).snapshot(name)

    info = ask(run)
    print_result(info, info.name)


@command.command("ls")
@connection
def ls() -> None:
    """List snapshots, newest first."""
    found = ask(lambda client: client.snapshots.list())
    rows = [
        (
            one.name,
            one.status,
            one.kind,
            size(one.size_bytes),
            one.image,
            one.owner,
            one.session_id,
            when(one.created_at),
        )
        for one in found
    ]
    show_table(HEADS, rows, "no snapshots; `holdfast snapshot create ID NAME` takes one", data={"snapshots": found})


@command.command("rm")
@click.argument("name")
@connection
def rm(name: str) -> None:
    """Remove a snapshot, by name or id. Sessions that were made from it stay as they are."""
    ask(lambda client: client.snapshots.remove(name))
    print_result({"removed": name}, name)
