"""``holdfast tunnel``: names for ports of a session."""

from typing import TYPE_CHECKING, Literal, cast

import click

from holdfast.cli.common import ask, connection, print_result, show_table, when
from holdfast.cli.lookup import find_session

if TYPE_CHECKING:
    from holdfast.sdk import Client, TunnelInfo

HEADS = ("NAME", "PORT", "HOST", "CREATED", "URL")


@click.group("tunnel")
def command() -> None:
    """Give names to ports of a session, list and remove them. `holdfast open ID NAME` opens one.

    A thread's key stands for its sandbox; its next sandbox has the same names.
    """


@command.command("put")
@click.argument("session", metavar="ID")
@click.argument("name")
@click.argument("port", type=click.IntRange(1, 65535))
@click.option(
    "--host",
    type=click.Choice(["pass", "rewrite"]),
    help="What the program sees as its host name: the one in the address bar, or 127.0.0.1:PORT.",
)
@connection
def put(session: str, name: str, port: int, host: str | None) -> None:
    """Give a port a name, and print its address. A name that is there leads to this port from now on."""
    wanted = cast("Literal['pass', 'rewrite'] | None", host)

    async def run(client: "Client") -> "TunnelInfo":
        return await (await find_session(client, session)).tunnels.put(name, port, host=wanted)

    made = ask(run)
    print_result(made, made.url)


@command.command("ls")
@click.argument("session", metavar="ID")
@connection
def ls(session: str) -> None:
    """List the names of a session's ports."""

    async def run(client: "Client") -> "list[TunnelInfo]":
        return await (await find_session(client, session)).tunnels.list()

    found = ask(run)
    rows = [(one.name, str(one.port), one.host or "-", when(one.created_at), one.url) for one in found]
    show_table(HEADS, rows, "no names; `holdfast tunnel put ID NAME PORT` gives one", data={"tunnels": found})


@command.command("rm")
@click.argument("session", metavar="ID")
@click.argument("name")
@connection
def rm(session: str, name: str) -> None:
    """Remove a name. Who came in by it is locked out."""

    async def run(client: "Client") -> None:
        await (await find_session(client, session)).tunnels.remove(name)

    ask(run)
    print_result({"removed": name}, name)
