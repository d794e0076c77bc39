"""Ports inside the sandbox whose connections are passed on to the host, for sandboxes without a network of their own.

Each connection to ``127.0.0.1:port`` gets its own connection to the host, with the listener's name in it. While the
daemon is away, callers wait for the listener's ``patience`` and are then closed; the listener stays. Connections that
were open when a daemon died are reset, so that no program mistakes a part of an answer for the whole.
"""

from __future__ import annotations

import os

from holdfast.protocol import fields
from holdfast.protocol.frames import Header
from holdfast.runner.lean import Callable, sockets
from holdfast.runner.line.dial import Dialer
from holdfast.runner.line.pump import Pump, close
from holdfast.runner.line.witness import Ask, Witness
from holdfast.runner.loop import READ, Loop
from holdfast.runner.refused import Reply

MAX_LISTENERS = 8
MAX_CONNECTIONS = 128
"""Per listener. Further callers wait in the kernel's queue."""
RETRY_SECONDS = 0.05
ATTEMPTS = 100
"""How often the host's queue may be full before a caller is closed."""
AWAY_SECONDS = 0.25
"""The pause between attempts to reach a daemon that is away."""


class Listeners:
    """All listeners, by name."""

    def __init__(self, loop: Loop, dialer: Dialer, witness: Witness, on_return: Callable[[], None]) -> None:
        """``on_return`` is called when the first caller reaches a new daemon, after the one before was lost."""
        self._loop = loop
        self._dialer = dialer
        self._witness = witness
        self._daemon = witness.daemon
        self._on_return = on_return
        self._by_name: dict[str, _Listener] = {}
        self.calls = {"listen": self._listen}

    @property
    def ports(self) -> set[int]:
        """The ports of 127.0.0.1 that our listeners use."""
        return {listener.port for listener in self._by_name.values()}

    def _listen(self, header: Header, _body: bytes, reply: Reply) -> None:
        """Listen from now on; a repeated call changes nothing.

        ``patience``: for how many seconds callers wait for a daemon that is away.
        """
        name, port = fields.text(header, "name"), fields.integer(header, "port")
        if not 0 < port < 65536:
            raise ValueError(f"{port} is no port")
        known = self._by_name.get(name)
        if known is not None:
            if known.port != port:
                raise ValueError(f"{name} listens at {known.port} already")
        elif len(self._by_name) >= MAX_LISTENERS:
            raise ValueError(f"there are {MAX_LISTENERS} listeners already")
        else:
            patience = fields.optional_integer(header, "patience") or 0
            self._by_name[name] = _Listener(self._loop, self._dialer, name, port, patience, self._answered)
        reply({})

    def _answered(self) -> Ask:
        if self._daemon != self._witness.daemon:
            self._daemon = self._witness.daemon
            self._on_return()
        return self._witness.of_new_connection()


class _Listener:
    def __init__(
        self, loop: Loop, dialer: Dialer, name: str, port: int, patience: int, answered: Callable[[], Ask]
    ) -> None:
        self.port = port
        self._calls_away = int(patience / AWAY_SECONDS)
        self._loop = loop
        self._dialer = dialer
        self._answered = answered
        self._name = name
        self._count = 0
        self._socket = sockets.socket(sockets.AF_INET, sockets.SOCK_STREAM | sockets.SOCK_CLOEXEC)
        try:
            self._socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
            self._socket.bind(("127.0.0.1", port))
            self._socket.listen(128)
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self._resume()

    def _resume(self) -> None:
        if self._count < MAX_CONNECTIONS:
            self._loop.watch(self._socket.fileno(), READ, self._on_ready)

    def _on_ready(self, _events: int) -> None:
        try:
            descriptor, _address = self._socket._accept()  # type: ignore[attr-defined]  # of the C half only
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # no descriptors left: later
            self._loop.unwatch(self._socket.fileno())
            self._loop.after(RETRY_SECONDS, self._resume)
            return
        self._count += 1
        if self._count >= MAX_CONNECTIONS:
            self._loop.unwatch(self._socket.fileno())
        self._connect(sockets.socket(fileno=descriptor), ATTEMPTS, self._calls_away)

    def _connect(self, caller: sockets.socket, attempts: int, calls_away: int) -> None:
        """Connect ``caller`` to the host. This never blocks: if the host's queue is full, it tries again later."""
        try:
            home = self._dialer.connect_listened(self._name, os.urandom(8).hex())
        except BlockingIOError:
            if attempts > 0:
                self._loop.after(RETRY_SECONDS, lambda: self._connect(caller, attempts - 1, calls_away))
                return
            self._give_up(caller)
        except OSError:  # no daemon at the moment
            if calls_away > 0:
                self._loop.after(AWAY_SECONDS, lambda: self._connect(caller, attempts, calls_away - 1))
                return
            self._give_up(caller)
        else:
            self._dialer.entrust(Pump(self._loop, caller, home, self._ended, self._answered()))

    def _give_up(self, caller: sockets.socket) -> None:
        close(caller)
        self._ended()

    def _ended(self) -> None:
        self._count -= 1
        self._resume()
