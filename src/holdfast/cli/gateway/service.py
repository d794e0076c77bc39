"""``holdfast service``: programs of a session that run while somebody uses them."""

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, harmless, print_result, show_json, show_table, wants_json
from holdfast.cli.lookup import find_session
from holdfast.cli.sessions.ls import span

if TYPE_CHECKING:
    from holdfast.sdk import Client, ServiceInfo

HEADS = ("SERVICE", "STATE", "AGE", "PORT", "REASON")
_REASON = 80


@click.group("service")
def command() -> None:
    """Start, stop and look at services of a session: what its image declares, such as ide. `holdfast open ID ide`
    starts one, too."""


@command.command("ls")
@click.argument("session", metavar="ID")
@connection
def ls(session: str) -> None:
    """List the services of a session. This wakes nothing."""

    async def look(client: "Client") -> "list[ServiceInfo]":
        return await (await find_session(client, session)).services.list()

    found, now = ask(look), datetime.now(UTC)
    show_table(HEADS, [row(info, now) for info in found], "no services", data={"services": found})


def row(info: "ServiceInfo", now: datetime) -> tuple[str, ...]:
    reason = harmless(" ".join((info.reason or "").split()))
    return (
        info.name,
        info.state,
        span(now - info.started_at) if info.started_at else "-",
        str(info.port or "-"),
        reason if len(reason) <= _REASON else f"{reason[: _REASON - 1]}…",
    )


@command.command("start")
@click.argument("session", metavar="ID")
@click.argument("name")
@connection
def start(session: str, name: str) -> None:
    """Start a service unless it runs, wait until it is ready, and print its address."""

    async def run(client: "Client") -> "ServiceInfo":
        return await (await find_session(client, session)).services.start(name)

    info = ask(run)
    print_result(info, info.url)


@command.command("stop")
@click.argument("session", metavar="ID")
@click.argument("name")
@connection
def stop(session: str, name: str) -> None:
    """Stop a service. It starts again when somebody wants it, however often it has failed before."""

    async def run(client: "Client") -> None:
        await (await find_session(client, session)).services.stop(name)

    ask(run)
    print_result({"stopped": name}, name)


@command.command("log")
@click.argument("session", metavar="ID")
@click.argument("name")
@connection
def log(session: str, name: str) -> None:
    """Show what a service has written in this run, or in the last one. With --json, each piece is a line."""

    async def show(client: "Client") -> None:
        services, offset = (await find_session(client, session)).services, 0
        while pieces := await services.log(name, offset):
            for piece in pieces:
                if wants_json():
                    show_json({"stream": piece.stream, "offset": piece.offset, "text": piece.text})
                else:
                    (sys.stdout if piece.stream == "stdout" else sys.stderr).buffer.write(piece.data)
            offset = pieces[-1].end

    ask(show)
