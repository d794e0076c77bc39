"""Outgoing connections of the daemon itself: to model providers, git servers and webhooks.

Their addresses come from the configuration, so internal addresses are allowed as well as public ones. But addresses
that nobody may reach are refused here, too, because a configured name may belong to somebody else by now. The address
of each connection is checked after the name was looked up. The look-ups are separate from those of sandboxes.
"""

import errno
import ipaddress
import socket

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from holdfast.network.addresses import Address, is_never
from holdfast.network.names import Names, NotResolved, Share, SystemNames
from holdfast.network.proxies import Proxies

MOST_LOOK_UPS = 32


class NeverReached(PermissionError):
    """A name resolves to an address that nobody may reach."""

    def __init__(self, address: str) -> None:
        super().__init__(errno.EACCES, f"{address} is an address that nobody may reach")


class Outside:
    """The connections of the whole daemon. It must be used, and closed, in one running loop."""

    def __init__(self, names: Names | None = None, proxies: Proxies | None = None) -> None:
        self.proxies = proxies or Proxies()
        self._names = names or Names()
        self._system = SystemNames()

    def connector(self, *, limit: int = 100, keepalive_timeout: float = 15.0) -> aiohttp.TCPConnector:
        """Make a connector for one HTTP client, with its own share of look-ups. It needs a running loop."""
        return aiohttp.TCPConnector(
            limit=limit,
            keepalive_timeout=keepalive_timeout,
            ttl_dns_cache=10,
            resolver=_Resolver(Share(self._names, most=MOST_LOOK_UPS), self._system),
            socket_factory=open_socket,
        )

    async def close(self) -> None:
        await self._names.close()
        self._system.close()


def open_socket(found: aiohttp.AddrInfoType) -> socket.socket:
    """Open the socket of one connection. Raises ``NeverReached``."""
    family, kind, protocol, _name, place = found
    address = str(place[0]).partition("%")[0]
    if is_never(ipaddress.ip_address(address)):
        raise NeverReached(address)
    return socket.socket(family=family, type=kind, proto=protocol)


class _Resolver(AbstractResolver):
    def __init__(self, share: Share, system: SystemNames) -> None:
        self._share = share
        self._system = system

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        try:
            found = await self._share.look_up(host)
        except NotResolved as error:
            if not error.unknown:
                raise
            found = await self._system.look_up(host)
        return [_result(host, port, address) for address in found if family in (0, _family(address))]

    async def close(self) -> None:
        """Do nothing: the resolver belongs to all clients and is closed elsewhere."""


def _family(address: Address) -> socket.AddressFamily:
    return socket.AF_INET if address.version == 4 else socket.AF_INET6


def _result(host: str, port: int, address: Address) -> ResolveResult:
    return {
        "hostname": host,
        "host": str(address),
        "port": port,
        "family": _family(address),
        "proto": 0,
        "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    }
