"""Connections of the daemon's own clients: to providers, git servers and webhooks.

Their addresses come from the configuration, so internal ones are as good as public ones. What nobody may reach they do
not reach either: a name in the configuration may belong to somebody else by now, and the check is made on the address
of each connection, after the name was looked up.
"""

import errno
import ipaddress
import socket

import aiohttp

from holdfast.network.addresses import is_never


class NeverReached(PermissionError):
    """The name leads to an address that nobody may reach."""

    def __init__(self, address: str) -> None:
        super().__init__(errno.EACCES, f"{address} is an address that nobody may reach")


def open_socket(found: aiohttp.AddrInfoType) -> socket.socket:
    """For one connection. Raises ``NeverReached``."""
    family, kind, protocol, _name, place = found
    address = str(place[0]).partition("%")[0]
    if is_never(ipaddress.ip_address(address)):
        raise NeverReached(address)
    return socket.socket(family=family, type=kind, proto=protocol)


def connector(*, limit: int = 100, keepalive_timeout: float = 15.0) -> aiohttp.TCPConnector:
    """To be made in a running loop."""
    return aiohttp.TCPConnector(
        limit=limit, keepalive_timeout=keepalive_timeout, ttl_dns_cache=60, socket_factory=open_socket
    )
