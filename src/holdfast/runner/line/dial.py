"""The runner's way to the host: a Unix socket that is bind-mounted into the sandbox."""

from __future__ import annotations

import os

from holdfast.protocol import frames
from holdfast.protocol.messages import VERSION
from holdfast.runner.lean import sockets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Carrier(Protocol):
        """An object that owns a connection to the host and transfers something over it."""

        @property
        def closed(self) -> bool: ...

        def close(self) -> None: ...


class Dialer:
    """Opens connections to the host and sends the first frame, with our session id and token."""

    def __init__(self, path: str, session: str, token: str) -> None:
        self._path = path
        self._session = session
        self._token = token
        self._carriers: list[Carrier] = []

    def become(self, session: str, token: str) -> None:
        """Take another identity, because this runner is now in a copy of its sandbox."""
        self._session = session
        self._token = token

    def entrust(self, carrier: Carrier) -> None:
        """Remember an object that owns one of our connections, so that ``hang_up`` can close it."""
        self._carriers = [one for one in self._carriers if not one.closed]
        self._carriers.append(carrier)

    def hang_up(self) -> None:
        """End every stream, but not the control connection and not the connections of forked children."""
        carriers, self._carriers = self._carriers, []
        for one in carriers:
            if not one.closed:
                one.close()

    def connect_control(self, capabilities: list[str], running: list[str]) -> sockets.socket:
        """Open the control connection and send our hello; the answer is not read here. Raises OSError."""
        about: dict[str, object] = {
            "capabilities": capabilities,
            "running": running,
            "home": os.environ.get("HOME", "/"),
        }
        return self._connect("hello", about)

    def connect_stream(self, stream: str) -> sockets.socket:
        """Open a connection for one stream, with the id that the host has chosen."""
        return self._connect("stream", {"stream": stream})

    def connect_listened(self, name: str, stream: str) -> sockets.socket:
        """Open a connection for a caller at the listener ``name``. It raises BlockingIOError instead of waiting."""
        return self._connect("stream", {"listen": name, "stream": stream}, blocking=False)

    def _connect(self, op: str, fields: dict[str, object], *, blocking: bool = True) -> sockets.socket:
        connection = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM | sockets.SOCK_CLOEXEC)
        connection.setblocking(blocking)
        try:
            connection.connect(self._path)
            hello = {"op": op, "v": VERSION, "session": self._session, "token": self._token, **fields}
            connection.sendall(frames.encode(hello))
        except OSError:
            connection.close()
            raise
        return connection
