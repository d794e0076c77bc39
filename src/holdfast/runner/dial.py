"""How the runner reaches the host: a Unix socket that is bind-mounted into the sandbox."""

from __future__ import annotations

import _socket
import os

from holdfast.protocol import frames
from holdfast.protocol.messages import VERSION


class Dialer:
    """Opens connections home and says who we are."""

    def __init__(self, path: str, session: str, token: str) -> None:
        self._path = path
        self._session = session
        self._token = token

    def connect_control(self, capabilities: list[str], running: list[str]):  # type: ignore[no-untyped-def]
        """The control connection, with our hello sent; the answer has not been read. Raises OSError."""
        about = {"capabilities": capabilities, "running": running, "home": os.environ.get("HOME", "/")}
        return self._connect("hello", about)

    def connect_stream(self, stream: str):  # type: ignore[no-untyped-def]
        """A connection for one stream, announced by the id that the host chose."""
        return self._connect("stream", {"stream": stream})

    def _connect(self, op: str, fields: dict[str, object]):  # type: ignore[no-untyped-def]
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        try:
            connection.connect(self._path)
            hello = {"op": op, "v": VERSION, "session": self._session, "token": self._token, **fields}
            connection.sendall(frames.encode(hello))
        except OSError:
            connection.close()
            raise
        return connection
