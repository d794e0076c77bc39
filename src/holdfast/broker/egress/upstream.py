"""Opens connections by name: the name is resolved once, every address is checked, and one of those is connected to.

There is no second look-up between the check and the connection, so a name that changes its mind in between (DNS
rebinding) gains nothing.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from holdfast.broker.egress import addresses
from holdfast.broker.egress.addresses import PrivateHosts
from holdfast.network.http_peer import Stream
from holdfast.network.proxies import Proxies, Proxy
from holdfast.records.host_pattern import Address, as_address
from holdfast.records.network import NetworkPolicy

RESOLVE_SECONDS = 10.0
CONNECT_SECONDS = 10.0
LINGER_SECONDS = 10.0
HERE_SECONDS = 3.0
MAX_ATTEMPTS = 4
_ALLOW_IT = "a session that names it in network.allow (holdfast new --allow) can reach it"
BUFFER = 1 << 16

Resolve = Callable[[str], Awaitable[Sequence[Address]]]
"""All addresses of a host. Raises OSError if there are none."""


def hang_up(writer: asyncio.StreamWriter) -> None:
    """Close a connection. Written data is still delivered, but not for long: that would keep our descriptor."""
    writer.close()
    if writer.transport.get_write_buffer_size():
        asyncio.get_running_loop().call_later(LINGER_SECONDS, writer.transport.abort)


class EgressRefused(Exception):
    """The policy does not allow this connection; the text says why."""


class EgressUnreachable(Exception):
    """The connection is allowed, but cannot be made now; the text says why."""


@dataclass(frozen=True, slots=True)
class EgressUpstream:
    """The way out of this host, for one session."""

    private: PrivateHosts
    resolve: Resolve
    proxies: Proxies = field(default_factory=Proxies)
    resolve_proxy: Resolve | None = None

    def proxy(self, host: str, port: int, *, tunnel: bool) -> Proxy | None:
        """Return the proxy of this host that a request must go through; None if it goes there directly."""
        return self.proxies.find("https" if tunnel else "http", host, port)

    async def connect(self, policy: NetworkPolicy, host: str, port: int, *, tunnel: bool = True) -> Stream:
        """Connect to a (normalised) host. Raises ``EgressRefused`` or ``EgressUnreachable``.

        Where a proxy stands before the host, a tunnel leads through it; else the connection is to the proxy itself,
        which wants to be told the whole URL.
        """
        if not policy.allows(host, port):
            raise EgressRefused(f"{_shown(host, port)} is not in the allow list of this session; {_ALLOW_IT}")
        if why := addresses.refusal_of_name(host):
            raise EgressRefused(f"{host} {why}")
        proxy = self.proxy(host, port, tunnel=tunnel)
        found = await (self._addresses(host) if proxy is None else self._known_here(host))
        if self.private.around.stale:
            await asyncio.to_thread(self.private.around.refresh)
        for address in found:
            if why := addresses.refusal(host, address, self.private):
                raise EgressRefused(f"{host} {why}" if str(address) == host else f"{host} is {address}, which {why}")
        if proxy is not None:
            return await self._through(proxy, host, port, tunnel=tunnel)
        return await _connect_to_one(found[:MAX_ATTEMPTS], host, port)

    async def _known_here(self, host: str) -> Sequence[Address]:
        """Find the addresses that this host knows: behind a proxy, only the proxy knows many names."""
        try:
            async with asyncio.timeout(HERE_SECONDS):
                return await self._addresses(host)
        except (EgressUnreachable, TimeoutError):
            return []

    async def _through(self, proxy: Proxy, host: str, port: int, *, tunnel: bool) -> Stream:
        literal = as_address(proxy.host)
        try:
            found = [literal] if literal is not None else await (self.resolve_proxy or self.resolve)(proxy.host)
        except OSError as error:
            raise EgressUnreachable(f"the daemon's own proxy cannot be resolved: {error.strerror}") from None
        stream = await _connect_to_one(found[:MAX_ATTEMPTS], f"the daemon's own proxy {proxy.host}", proxy.port)
        if not tunnel:
            return stream
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await _open_tunnel(stream, proxy, _shown(host, port))
        except TimeoutError:
            hang_up(stream[1])
            raise EgressUnreachable(f"the daemon's own proxy did not open a way to {host} in time") from None
        except BaseException:
            hang_up(stream[1])
            raise
        return stream

    async def _addresses(self, host: str) -> Sequence[Address]:
        literal = as_address(host)
        if literal is not None:
            return [literal]
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                found = await self.resolve(host)
        except TimeoutError:
            raise EgressUnreachable(f"{host} could not be resolved within {RESOLVE_SECONDS:.0f} s") from None
        except (OSError, UnicodeError) as error:
            raise EgressUnreachable(
                f"{host} could not be resolved: {getattr(error, 'strerror', None) or error}"
            ) from None
        if not found:
            raise EgressUnreachable(f"{host} has no address")
        return found


async def _open_tunnel(stream: Stream, proxy: Proxy, place: str) -> None:
    """Raises ``EgressUnreachable``."""
    reader, writer = stream
    told = b"".join(b"%s: %s\r\n" % pair for pair in proxy.headers)
    writer.write(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n".encode() + told + b"\r\n")
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise EgressUnreachable(f"the daemon's own proxy did not open a way to {place}") from None
    words = head.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(words) < 2 or not words[1].startswith(b"2"):
        status = words[1].decode("ascii", "replace")[:20] if len(words) > 1 else "nonsense"
        raise EgressUnreachable(f"the daemon's own proxy did not open a way to {place}: it answered {status}")


async def _connect_to_one(found: Sequence[Address], host: str, port: int) -> Stream:
    """Connect to the first address that answers. Each gets an equal part of the time that is left."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CONNECT_SECONDS
    problem = ""
    for left, address in zip(range(len(found), 0, -1), found, strict=True):
        try:
            async with asyncio.timeout((deadline - loop.time()) / left):
                # Numeric: the address that was checked is the one that is connected to.
                return await asyncio.open_connection(
                    str(address), port, limit=BUFFER, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
                )
        except TimeoutError:
            problem = "no answer in time"
        except OSError as error:
            problem = os.strerror(error.errno) if error.errno else str(error)
    raise EgressUnreachable(f"cannot connect to {_shown(host, port)}: {problem}")


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
