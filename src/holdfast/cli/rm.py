"""``holdfast rm``: destroy sessions."""

from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, find_session, report, show_json, wants_json
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.sdk import Client, Session


@click.command("rm")
@click.argument("sessions", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All sessions there are.")
@connection
def command(sessions: tuple[str, ...], everything: bool) -> int:
    """Destroy sessions with all their files and processes, and print their ids."""
    if everything == bool(sessions):
        raise click.UsageError("name the sessions to destroy, or say --all")
    done, failed = ask(lambda client: destroy(client, sessions))
    if wants_json():
        show_json({"destroyed": done})
    else:
        for one in done:
            click.echo(one)
    for error in failed:
        report(error.code, error.message, as_json=wants_json(), request_id=getattr(error, "request_id", None))
    return 1 if failed else 0


async def destroy(client: "Client", names: tuple[str, ...]) -> tuple[list[str], list[HoldfastError]]:
    """One that fails does not spare the others."""
    done: list[str] = []
    failed: list[HoldfastError] = []

    async def end(session: "Session") -> None:
        await session.destroy()
        done.append(session.id)

    if not names:
        for session in await client.list_sessions():
            if session.status != "destroyed":
                try:
                    await end(session)
                except HoldfastError as exc:
                    failed.append(exc)
    for name in names:
        try:
            await end(await find_session(client, name))
        except HoldfastError as exc:
            failed.append(exc)
    return done, failed
