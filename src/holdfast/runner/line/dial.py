"""How the runner reaches the host: a Unix socket that is bind-mounted into the sandbox."""

from __future__ import annotations

import os

from holdfast.protocol import frames
from holdfast.protocol.messages import VERSION
from holdfast.runner.lean import sockets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Carrier(Protocol):
        """What has a connection home and carries something over it."""

        @property
        def closed(self) -> bool: ...

        def close(self) -> None: ...


class Dialer:
    """Opens connections home and says who we are."""

    def __init__(self, path: str, session: str, token: str) -> None:
        self._path = path
        self._session = session
        self._token = token
        self._carriers: list[Carrier] = []

    def become(self, session: str, token: str) -> None:
        """We have come to life in a copy of the sandbox that we were in."""
        self._session = session
        self._token = token

    def entrust(self, carrier: Carrier) -> None:
        """Somebody has taken over a connection of ours, to be closed before its time if need be."""
        self._carriers = [one for one in self._carriers if not one.closed]
        self._carriers.append(carrier)

    def hang_up(self) -> None:
        """End every stream. The control connection is another's, and so are those of forked children."""
        carriers, self._carriers = self._carriers, []
        for one in carriers:
            if not one.closed:
                one.close()

    def connect_control(self, capabilities: list[str], running: list[str]) -> sockets.socket:
        """The control connection, with our hello sent; the answer has not been read. Raises OSError."""
        about: dict[str, object] = {
            "capabilities": capabilities,
            "running": running,
            "home": os.environ.get("HOME", "/"),
        }
        return self._connect("hello", about)

    def connect_stream(self, stream: str) -> sockets.socket:
        """A connection for one stream, announced by the id that the host chose."""
        return self._connect("stream", {"stream": stream})

    def connect_listened(self, name: str, stream: str) -> sockets.socket:
        """A connection for a caller at the listener ``name``. Raises BlockingIOError rather than wait."""
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
