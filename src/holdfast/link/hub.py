"""The hub has all links of this host: one directory and one Unix socket per session, under one root."""

import asyncio
import contextvars
import os
import shutil
import socket
from pathlib import Path

import structlog

from holdfast.concurrency import KeyedLocks
from holdfast.errors import HoldfastError, SandboxLost, Unavailable
from holdfast.link.connection import Connection
from holdfast.link.link import Link

SOCKET_NAME = "host.sock"
MAX_CONNECTIONS = 64
"""Per session. Any program in the sandbox can open the socket, but it cannot use up the host's file descriptors."""
MAX_CALLED = 320
"""The limit on streams that programs of one sandbox have opened, to the brokers. An honest runner opens fewer, and each
broker has a limit of its own. Streams that the host has asked for have no limit: one that it did not ask for is
closed as soon as it arrives."""

log = structlog.get_logger(__name__)


class _Listener:
    """One session's socket, and the connections it has accepted."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.server: asyncio.Server | None = None
        """None while no new connection is accepted."""
        self.connections: set[Connection] = set()
        """All connections that are not streams."""
        self.called: set[Connection] = set()
        """Streams that programs of the sandbox have opened."""

    def accept(self) -> Connection:
        refused = len(self.connections) >= MAX_CONNECTIONS
        if refused:
            log.warning("link.too_many_connections", session_id=self.link.session_id, limit=MAX_CONNECTIONS)
        connection = Connection(self.link, self, refused=refused)
        self.connections.add(connection)
        return connection

    def let_stream(self, connection: Connection, /, *, called: bool) -> bool:
        if called and len(self.called) >= MAX_CALLED:
            log.warning("link.too_many_streams", session_id=self.link.session_id, limit=MAX_CALLED)
            return False
        self.connections.discard(connection)
        if called:
            self.called.add(connection)
        return True

    def forget(self, connection: Connection, /) -> None:
        self.connections.discard(connection)
        self.called.discard(connection)

    def stop_accepting(self) -> None:
        if self.server is not None:
            self.server.close()
            self.server = None


class LinkHub:
    """Opens and closes links. Sandboxes outlive the hub: when it shuts down it hangs up, and the runners dial again."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._listeners: dict[str, _Listener] = {}
        self._locks = KeyedLocks[str]()
        """Opening a socket waits for the removal of the one before it, and of its whole directory."""

    def directory(self, session_id: str) -> Path:
        """Return the directory of this session's socket; drivers mount it into the sandbox."""
        return self._root / session_id

    def get(self, session_id: str) -> Link | None:
        """Return the session's link, if it is open."""
        listener = self._listeners.get(session_id)
        return listener.link if listener else None

    async def listen(self, session_id: str, token: str) -> Link:
        """Accept this session's runner from now on. A second call returns the same link."""
        async with self._locks.of(session_id):
            listener = self._listeners.get(session_id) or _Listener(Link(session_id, token))
            if listener.server is None:
                await self._open(session_id, listener)
            return listener.link

    async def _open(self, session_id: str, listener: _Listener) -> None:
        directory = self.directory(session_id)
        try:
            listening = await asyncio.to_thread(self._bind, directory)
            serving = asyncio.get_running_loop().create_unix_server(listener.accept, sock=listening)
            # In a fresh context: what a runner sends later must not be logged as part of the request that came first.
            listener.server = await asyncio.create_task(serving, context=contextvars.Context())
        except OSError as error:
            raise Unavailable(f"cannot open the link socket in {directory}: {error.strerror}") from error
        self._listeners[session_id] = listener

    async def quiesce(self, session_id: str, *, timeout: float) -> None:
        """Have the runner close all its connections, and refuse new ones until ``listen`` is called again.

        Raises ``Conflict``, and changes nothing, if something is under way in the sandbox.
        """
        listener = self._listeners.get(session_id)
        if listener is None:
            raise SandboxLost(f"there is no link to {session_id}")
        listener.stop_accepting()
        try:
            await listener.link.call("quiesce", {}, timeout=timeout)
        except BaseException:
            await self._open(session_id, listener)
            raise

    def _bind(self, directory: Path) -> socket.socket:
        """Bind by the directory's descriptor: a socket's path may have only 107 bytes, a state directory has more."""
        for made in (self._root, directory):  # passable for sandboxes, not listable for anyone
            made.mkdir(parents=True, exist_ok=True)
            made.chmod(0o711)
        descriptor = os.open(directory, os.O_DIRECTORY | os.O_CLOEXEC)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            path = Path(f"/proc/self/fd/{descriptor}/{SOCKET_NAME}")
            path.unlink(missing_ok=True)
            listening.bind(str(path))
            path.chmod(0o666)  # the sandbox's user has another id; the token is what counts
            listening.listen(16)
        except OSError:
            listening.close()
            raise
        finally:
            os.close(descriptor)
        return listening

    async def close(self, session_id: str, error: HoldfastError) -> None:
        """End a session's link for good: its calls fail with ``error``, and its directory is removed."""
        listener = self._listeners.pop(session_id, None)
        if listener is not None:
            listener.link.lose(error)
            _hang_up(listener)
        async with self._locks.of(session_id):
            if session_id not in self._listeners:  # else it was opened again meanwhile
                await asyncio.to_thread(shutil.rmtree, self.directory(session_id), ignore_errors=True)

    async def shut_down(self) -> None:
        """Close all links because the daemon stops; the sockets and the sandboxes stay for the next daemon."""
        for listener in self._listeners.values():
            listener.link.lose(Unavailable("the daemon is stopping; ask again when it is back"))
            _hang_up(listener)
        self._listeners.clear()


def _hang_up(listener: _Listener) -> None:
    listener.stop_accepting()
    for connection in list(listener.connections):
        connection.close()
