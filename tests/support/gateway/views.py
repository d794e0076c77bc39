"""The WebSockets of the gateway's own pages, as these pages open them."""

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any

from websockets.sync.client import ClientConnection, connect

from support.gateway.visitor import Site

KEY = "0123456789abcdef"
SOCKET = "/.holdfast/socket"


@contextlib.contextmanager
def opened(
    site: Site, query: str = f"key={KEY}", *, label: str = "terminal", path: str = SOCKET, **headers: str
) -> Iterator[ClientConnection]:
    """A view's WebSocket, as a page opens it."""
    host, _, port = site.daemon.url.removeprefix("http://").rpartition(":")
    raw = socket.create_connection((host, int(port)))
    origin = headers.pop("origin", site.origin(label))
    sent = {
        **({"Origin": origin} if origin else {}),
        **{name.replace("_", "-"): text for name, text in headers.items()},
    }
    url = f"ws://{site.host(label)}{path}?{query}"
    with connect(url, sock=raw, additional_headers=sent, compression=None, open_timeout=30) as opened:
        yield opened


def words(connection: ClientConnection) -> dict[str, Any]:
    """The next text message."""
    while True:
        message = connection.recv(timeout=30)
        if isinstance(message, str):
            found: dict[str, Any] = json.loads(message)
            return found
