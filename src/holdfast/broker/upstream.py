"""From a name to a connection: the name is resolved once, every address is checked, and one of those is connected to.

There is no second look-up between the check and the connection, so a name that changes its mind in between (DNS
rebinding) gains nothing.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from holdfast.broker import addresses
from holdfast.broker.addresses import PrivateHosts
from holdfast.sessions.host_pattern import Address, as_address
from holdfast.sessions.network import NetworkPolicy

RESOLVE_SECONDS = 10.0
CONNECT_SECONDS = 10.0
LINGER_SECONDS = 10.0
MAX_ATTEMPTS = 4
BUFFER = 1 << 16

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Resolve = Callable[[str], Awaitable[Sequence[Address]]]
"""All addresses of a host. Raises OSError if there are none."""


def hang_up(writer: asyncio.StreamWriter) -> None:
    """What has been written is still delivered, for a moment: who never reads must not keep our descriptor."""
    writer.close()
    if writer.transport.get_write_buffer_size():
        asyncio.get_running_loop().call_later(LINGER_SECONDS, writer.transport.abort)


class Refused(Exception):
    """The policy does not let this pass; the text says why."""


class Unreachable(Exception):
    """It may pass, but there is no way there now; the text says why."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """The way out of this host, for one session."""

    private: PrivateHosts
    resolve: Resolve

    async def connect(self, policy: NetworkPolicy, host: str, port: int) -> Stream:
        """``host`` must be normalised. Raises ``Refused`` or ``Unreachable``."""
        if not policy.allows(host, port):
            raise Refused(f"{_shown(host, port)} is not in the allow list of this session")
        if why := addresses.refusal_of_name(host):
            raise Refused(f"{host} {why}")
        found = await self._addresses(host)
        if self.private.around.stale:
            await asyncio.to_thread(self.private.around.refresh)
        for address in found:
            if why := addresses.refusal(host, address, self.private):
                raise Refused(f"{host} {why}" if str(address) == host else f"{host} is {address}, which {why}")
        return await _connect_to_one(found[:MAX_ATTEMPTS], host, port)

    async def _addresses(self, host: str) -> Sequence[Address]:
        literal = as_address(host)
        if literal is not None:
            return [literal]
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                found = await self.resolve(host)
        except TimeoutError:
            raise Unreachable(f"{host} could not be resolved within {RESOLVE_SECONDS:.0f} s") from None
        except (OSError, UnicodeError) as error:
            raise Unreachable(f"{host} could not be resolved: {getattr(error, 'strerror', None) or error}") from None
        if not found:
            raise Unreachable(f"{host} has no address")
        return found


async def _connect_to_one(found: Sequence[Address], host: str, port: int) -> Stream:
    """The first that answers. Each gets an equal part of the time that is left, so that a dead one costs not all."""
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
    raise Unreachable(f"cannot connect to {_shown(host, port)}: {problem}")


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
