"""``holdfast forward``: a local port that leads to one inside a session."""

from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, print_result
from holdfast.cli.lookup import find_session

if TYPE_CHECKING:
    from holdfast.sdk import Client


@click.command("forward")
@click.argument("session", metavar="ID")
@click.argument("ports", metavar="[LOCAL:]PORT")
@click.option("--host", default="127.0.0.1", show_default=True, help="The local address to listen at.")
@connection
def command(session: str, ports: str, host: str) -> None:
    """Lead a local port to one inside a session, until Ctrl-C.

    Works without any network in the sandbox. Without LOCAL the same number is taken here, or a free one if that is
    taken; as LOCAL, 0 is any that is free.

    \b
    holdfast forward ID 3000
    holdfast forward ID 8080:3000
    """
    local, inside = _ports(ports)

    async def run(client: "Client") -> None:
        from holdfast.cli.sessions.forwarding import forward  # brings in asyncio, which --help can do without

        found = await find_session(client, session)
        await forward(found, inside, local, host, _announce)

    ask(run)


def _announce(host: str, port: int, inside: int) -> None:
    shown = f"[{host}]" if ":" in host else host
    text = f"http://{shown}:{port} leads to port {inside} inside; Ctrl-C ends it"
    print_result({"host": host, "port": port, "inside": inside}, text)


def _ports(text: str) -> tuple[int | None, int]:
    local, _, inside = text.rpartition(":")
    try:
        numbers = [int(part) for part in (inside, local) if part]
        if not all(0 <= number < 65536 for number in numbers) or numbers[0] == 0:
            raise ValueError
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither PORT nor LOCAL:PORT", param_hint="PORT") from None
    return (numbers[1] if local else None), numbers[0]
