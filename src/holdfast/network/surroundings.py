"""The addresses of this machine, and the networks that its interfaces are in, from the kernel's routing tables.

A network that is reached without a gateway counts as local, even if its addresses are public: a sandbox that could
reach it would be behind the firewall that protects it.
"""

import ipaddress
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.network.addresses import Address, Block, IPv4

REFRESH_SECONDS = 10.0
_ROUTES_4, _ROUTES_6 = Path("/proc/net/route"), Path("/proc/net/ipv6_route")
_UP, _GATEWAY, _REJECT = 0x1, 0x2, 0x200
_WIDEST_4, _WIDEST_6 = 8, 16
"""A wider route without a gateway leads to the whole internet (a modem, a tunnel), and not to a local network."""


def is_own(address: Address) -> bool:
    """Say whether it is an address of this machine itself; a public one would bypass every firewall in front of it."""
    family = socket.AF_INET if isinstance(address, IPv4) else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect((str(address), 9))  # sends nothing; asks which of our addresses would be used
        except OSError:
            return False  # no way there at all
        return ipaddress.ip_address(probe.getsockname()[0].partition("%")[0]) == address


def neighbourhood() -> Sequence[Block]:
    """Read the local networks, as they are now. This blocks for a moment."""
    return [*_routes_4(_read(_ROUTES_4)), *_routes_6(_read(_ROUTES_6))]


def _read(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []  # a kernel without this family


def _routes_4(lines: Sequence[str]) -> Iterator[Block]:
    for line in lines[1:]:
        _device, target, gateway, flags, _refs, _use, _metric, mask, *_rest = line.split()
        if not int(flags, 16) & _UP or int(flags, 16) & (_GATEWAY | _REJECT) or int(gateway, 16):
            continue
        network = ipaddress.IPv4Network((_number(target), str(IPv4(_number(mask)))), strict=False)
        if network.prefixlen >= _WIDEST_4:
            yield network


def _number(text: str) -> int:
    """Parse an address of the routing table, which the kernel prints in the byte order of its memory."""
    return int.from_bytes(int(text, 16).to_bytes(4, "little"), "big")


def _routes_6(lines: Sequence[str]) -> Iterator[Block]:
    for line in lines:
        target, length, _source, _source_length, gateway, _metric, _refs, _use, flags, device = line.split()
        if not int(flags, 16) & _UP or int(flags, 16) & (_GATEWAY | _REJECT) or int(gateway, 16) or device == "lo":
            continue
        if int(length, 16) >= _WIDEST_6:
            yield ipaddress.IPv6Network((int(target, 16), int(length, 16)), strict=False)


class Surroundings:
    """The local networks. They are read again now and then, because interfaces come and go."""

    def __init__(self) -> None:
        self._networks: Sequence[Block] = ()
        self._read_at: float | None = None

    @property
    def stale(self) -> bool:
        return self._read_at is None or time.monotonic() - self._read_at > REFRESH_SECONDS

    def refresh(self) -> None:
        """Read the local networks again. This blocks for a moment."""
        self._networks = neighbourhood()
        self._read_at = time.monotonic()

    def include(self, address: Address) -> bool:
        """Say whether an address is in a local network, as of the last refresh."""
        return any(address in network for network in self._networks)
