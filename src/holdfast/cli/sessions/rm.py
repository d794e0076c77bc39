"""``holdfast rm``: destroy sessions."""

import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, report_all, show_json, wants_json
from holdfast.cli.lookup import find_session, thread_keys
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.sdk import Client, Session


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
    done, failed = ask(lambda client: destroy(client, sessions)) if sessions else ([], [])
    if wants_json():
        show_json({"destroyed": done})
    else:
        for one in done:
            click.echo(one)
    report_all(failed)
    return 1 if failed else 0


def _chosen(*, sure: bool) -> tuple[str, ...]:
    """The ids of all sessions that belong to no thread; none, unless whoever is asked agrees."""

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


async def destroy(client: "Client", names: tuple[str, ...]) -> tuple[list[str], list[HoldfastError]]:
    """One that fails does not spare the others."""
    done: list[str] = []
    failed: list[HoldfastError] = []

    async def end(session: "Session") -> None:
        await session.destroy()
        done.append(session.id)

    for name in names:
        try:
            await end(await find_session(client, name, threads=False))
        except HoldfastError as exc:
            failed.append(exc)
    return done, failed
