"""Ports inside the sandbox: a list of those that programs listen on, and connections from the host to them."""

from __future__ import annotations

import errno
import os

from holdfast.protocol import fields
from holdfast.protocol.frames import Header
from holdfast.runner.lean import Callable, sockets
from holdfast.runner.line.dial import Dialer
from holdfast.runner.line.listeners import Listeners
from holdfast.runner.line.pump import Pump, close
from holdfast.runner.line.witness import Witness
from holdfast.runner.loop import WRITE, Loop
from holdfast.runner.refused import Refused, Reply, refuse

CONNECT_SECONDS = 5.0
MAX_CONNECTIONS = 1024
_LISTENING = b"0A"
_TABLES = (("/proc/net/tcp", sockets.AF_INET), ("/proc/net/tcp6", sockets.AF_INET6))
_LOOPBACK = ((sockets.AF_INET, "127.0.0.1"), (sockets.AF_INET6, "::1"))


class LocalPorts:
    def __init__(self, loop: Loop, dialer: Dialer, witness: Witness, listeners: Listeners) -> None:
        self._loop = loop
        self._dialer = dialer
        self._witness = witness
        self._listeners = listeners
        self._count = 0
        self.calls = {"ports": self._list, "dial": self._dial}

    def _list(self, _header: Header, _body: bytes, reply: Reply) -> None:
        own = self._listeners.ports  # ways out, and nobody's server
        reply({"ports": [one for one in listening() if one["address"] != "127.0.0.1" or one["port"] not in own]})

    def _dial(self, header: Header, _body: bytes, reply: Reply) -> None:
        """Connect to a port in the sandbox, then to the host; from then on bytes are copied both ways."""
        port, stream = fields.integer(header, "port"), fields.text(header, "stream")
        if not 0 < port < 65536:
            raise ValueError(f"{port} is no port")
        if self._count >= MAX_CONNECTIONS:
            raise Refused("conflict", f"{MAX_CONNECTIONS} connections to ports of this sandbox are open already")
        self._count += 1
        _Attempt(self._loop, port, lambda found: self._connected(found, port, stream, reply))

    def _connected(self, found: sockets.socket | None, port: int, stream: str, reply: Reply) -> None:
        if found is None:
            self._ended()
            message = f"nothing listens at port {port} of this sandbox; start it first, on 127.0.0.1 or all addresses"
            refuse(reply, "nothing_listens", message)
            return
        try:
            home = self._dialer.connect_stream(stream)
        except OSError:  # the daemon is gone, and with it whoever asked
            close(found)
            self._ended()
            return
        self._dialer.entrust(Pump(self._loop, found, home, self._ended, self._witness.of_new_connection()))
        reply({})

    def _ended(self) -> None:
        self._count -= 1


class _Attempt:
    """A connection attempt to one of the sandbox's own addresses, without blocking."""

    def __init__(self, loop: Loop, port: int, done: Callable[[sockets.socket | None], None]) -> None:
        self._loop = loop
        self._port = port
        self._done = done
        self._addresses = list(_LOOPBACK)
        self._socket: sockets.socket | None = None
        self._timer = loop.after(CONNECT_SECONDS, self._give_up)
        self._next()

    def _next(self) -> None:
        """Try the next address, or give up."""
        self._drop()
        while self._addresses:
            family, address = self._addresses.pop(0)
            try:
                self._socket = sockets.socket(family, sockets.SOCK_STREAM | sockets.SOCK_CLOEXEC)
            except OSError:  # a sandbox without IPv6
                continue
            self._socket.setblocking(False)
            problem = self._socket.connect_ex((address, self._port))
            if problem in (0, errno.EINPROGRESS):
                self._loop.watch(self._socket.fileno(), WRITE, self._on_ready)
                return
            self._drop()
        self._give_up()

    def _give_up(self) -> None:
        self._drop()
        self._timer.cancel()
        self._done(None)

    def _on_ready(self, _events: int) -> None:
        if self._socket is None:
            return
        if self._socket.getsockopt(sockets.SOL_SOCKET, sockets.SO_ERROR):
            self._next()
            return
        self._loop.unwatch(self._socket.fileno())
        self._timer.cancel()
        found, self._socket = self._socket, None
        self._done(found)

    def _drop(self) -> None:
        if self._socket is not None:
            self._loop.unwatch(self._socket.fileno())
            self._socket.close()
            self._socket = None


def listening() -> list[dict[str, object]]:
    """Return every listening TCP socket: its port and address, and its process, if that is visible."""
    found: list[tuple[int, str, bytes]] = []
    for path, family in _TABLES:
        try:
            with open(path, "rb") as table:
                rows = [line.split() for line in table.readlines()[1:]]
        except FileNotFoundError:  # a kernel without IPv6
            continue
        found += [_entry(row, family) for row in rows if row[3] == _LISTENING]
    owners = _owners({inode for _port, _address, inode in found})
    return [
        {"port": port, "address": address, "pid": owners.get(inode), "program": _program(owners.get(inode))}
        for port, address, inode in sorted(found)
    ]


def _entry(columns: list[bytes], family: int) -> tuple[int, str, bytes]:
    address, port = columns[1].split(b":")
    # Each group of four bytes is written as the number that it is for this processor.
    packed = b"".join([bytes.fromhex(address[at : at + 8].decode())[::-1] for at in range(0, len(address), 8)])
    return int(port, 16), sockets.inet_ntop(family, packed), columns[9]


def _owners(inodes: set[bytes]) -> dict[bytes, int]:
    """Map each socket to a process that has it: the first that is found."""
    wanted = {f"socket:[{inode.decode()}]": inode for inode in inodes}
    found: dict[bytes, int] = {}
    for name in os.listdir("/proc") if wanted else []:
        if not name.isdigit():
            continue
        try:
            for fd in os.listdir(f"/proc/{name}/fd"):
                inode = wanted.get(os.readlink(f"/proc/{name}/fd/{fd}"))
                if inode is not None:
                    found.setdefault(inode, int(name))
        except OSError:
            continue  # it has ended, or nobody may look at it
    return found


def _program(pid: int | None) -> str | None:
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return file.read().rstrip(b"\n").decode("utf-8", "replace")
    except OSError:
        return None
