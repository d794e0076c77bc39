"""``holdfast rm``: destroy sessions."""

import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, do_each, print_each, wants_json
from holdfast.cli.lookup import find_session, thread_keys

if TYPE_CHECKING:
    from holdfast.sdk import Client


@click.command("rm")
@click.argument("sessions", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All sessions there are, but for the sandboxes of threads.")
@click.option("-y", "--yes", is_flag=True, help="With --all: do not ask.")
@connection
def command(sessions: tuple[str, ...], everything: bool, yes: bool) -> int:
    """Destroy sessions with all their files and processes, and print their ids.

    With --all it asks first, if it is typed in a terminal. Sandboxes of threads are left alone: `holdfast thread rm`
    deletes a thread with its sandbox.
    """
    if everything == bool(sessions):
        raise click.UsageError("name the sessions to destroy, or say --all")
    if everything:
        sessions = _chosen(sure=yes or wants_json() or not (sys.stdin.isatty() and sys.stderr.isatty()))
    done, failed = ask(lambda client: do_each(sessions, partial(_destroy, client))) if sessions else ([], [])
    return print_each({"destroyed": done}, done, failed)


def _chosen(*, sure: bool) -> tuple[str, ...]:
    """Return the ids of all sessions that belong to no thread; none, unless whoever is asked agrees."""

    async def look(client: "Client") -> tuple[list[str], int]:
        live = [one.id for one in await client.list_sessions() if one.status != "destroyed"]
        spared = await thread_keys(client)
        return [one for one in live if one not in spared], sum(one in spared for one in live)

    found, spared = ask(look)
    if spared:
        left = "1 sandbox of a thread is" if spared == 1 else f"{spared} sandboxes of threads are"
        click.echo(f"holdfast: {left} left alone; `holdfast thread rm KEY` deletes a thread", err=True)
    what = found[0] if len(found) == 1 else f"{len(found)} sessions"
    if found and not sure and not click.confirm(f"Destroy {what}, with all files and processes?", err=True):
        return ()
    return tuple(found)


async def _destroy(client: "Client", name: str) -> str:
    session = await find_session(client, name, threads=False)
    await session.destroy()
    return session.id
