"""``holdfast open``: a link to what listens in a session, opened in a browser."""

import os
import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, print_result
from holdfast.cli.lookup import find_preview, find_session

if TYPE_CHECKING:
    from holdfast.sdk import Client, NewLink


@click.command("open")
@click.argument("session", metavar="ID")
@click.argument("target", metavar="[PORT|NAME]", required=False)
@click.option("--ttl", "ttl_seconds", type=int, metavar="SECONDS", help="How long the link is good; 300 if not public.")
@click.option("--public", is_flag=True, help="Whoever knows the address gets in; takes public_links.")
@click.option("--path", default="/", show_default=True, help="Where in the program it leads to.")
@click.option("--print", "only_print", is_flag=True, help="Print the link, and open nothing.")
@connection
def command(
    session: str, target: str | None, ttl_seconds: int | None, public: bool, path: str, only_print: bool
) -> None:
    """Open what listens at a port of a session, or one of its services, in a browser. A service is started first.

    A thread's key stands for its sandbox; without a port, the thread's preview is opened.

    The link is printed. It is good once: the browser that opens it stays in for as long as it is used.

    \b
    holdfast open ID 3000
    holdfast open ID ide            # a service, which `holdfast service ls ID` shows
    holdfast open ID web            # a tunnel: a port that was given a name
    holdfast open KEY               # the preview of a thread
    """

    async def run(client: "Client") -> "NewLink":
        if target is None:
            found, label = await find_preview(client, session)
        else:
            found, label = await find_session(client, session), target
        place = int(label) if label.isdigit() else label
        if isinstance(place, str) and any(one.name == place for one in await found.services.list()):
            await found.services.start(place)
        return await found.links.create(place, ttl_seconds=ttl_seconds, public=public, path=path)

    link = ask(run)
    print_result({"id": link.id, "url": link.url, "expires_at": link.expires_at.isoformat()}, link.url)
    if not only_print and sys.stdout.isatty() and _has_screen():
        import webbrowser

        webbrowser.open(link.url)


def _has_screen() -> bool:
    """Say whether a browser here would be seen: without this, one for terminals would take the terminal over."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
