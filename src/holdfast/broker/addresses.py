"""Which addresses a sandbox may reach: public ones; internal ones only where the operator has named them.

The tables are IANA's registries of special-purpose addresses, written out: what Python calls "global" differs from
version to version. Pure, but for ``is_own``, which asks the kernel.
"""

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.sessions.host_pattern import Address, HostPattern

IPv4, IPv6 = ipaddress.IPv4Address, ipaddress.IPv6Address

_NOT_PUBLIC_4 = tuple(
    ipaddress.IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    ipaddress.IPv6Network(block)
    for block in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

METADATA = frozenset(
    ipaddress.ip_address(address)
    for address in (
        "169.254.169.254",  # AWS, Azure, Google, and most others
        "169.254.170.2",  # AWS, credentials of containers
        "169.254.170.23",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",  # Google
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle
        "168.63.129.16",  # Azure; looks public
    )
)
"""Where clouds tell a machine its own secrets. Nobody can allow these."""
METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "instance-data", "instance-data.ec2.internal"})


def carried(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for (mapped, compatible, 6to4, NAT64), or the address itself."""
    if isinstance(address, IPv4):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    number = int(address)
    if address in _NAT64 or (number >> 32 == 0 and number > 1):
        return IPv4(number & 0xFFFFFFFF)
    return address


def is_public(address: Address) -> bool:
    meant = carried(address)
    if isinstance(meant, IPv4):
        return not any(meant in block for block in _NOT_PUBLIC_4)
    return meant in _PUBLIC_6 and not any(meant in block for block in _NOT_PUBLIC_6)


def is_metadata(address: Address) -> bool:
    return address in METADATA or carried(address) in METADATA


def is_own(address: Address) -> bool:
    """Whether it is an address of this very machine: a public one leads past every firewall in front of it."""
    family = socket.AF_INET if isinstance(address, IPv4) else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect((str(address), 9))  # sends nothing; asks which of our addresses would be used
        except OSError:
            return False  # no way there at all
        return ipaddress.ip_address(probe.getsockname()[0].partition("%")[0]) == address


@dataclass(frozen=True, slots=True)
class PrivateHosts:
    """What the operator opens of the internal network: hosts by name (``*.`` as in allow-lists), addresses, blocks."""

    names: tuple[HostPattern, ...] = ()
    blocks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()

    @classmethod
    def parse(cls, entries: Sequence[str]) -> "PrivateHosts":
        """Raises ``ValueError`` that names the entry which is none of these."""
        names, blocks = [], []
        for entry in entries:
            try:
                blocks.append(ipaddress.ip_network(entry))
                continue
            except ValueError as error:
                if "/" in entry:
                    raise ValueError(f"{entry!r} is no block of addresses: {error}") from None
            try:
                names.append(HostPattern.parse(entry))
            except ValueError as error:
                raise ValueError(f"{entry!r} {error}") from None
            if names[-1].port is not None:
                raise ValueError(f"{entry!r} has a port; ports are for the session's own list")
        return cls(tuple(names), tuple(blocks))

    def include(self, host: str, address: Address) -> bool:
        """``host`` must be normalised."""
        return any(pattern.names(host) for pattern in self.names) or any(address in block for block in self.blocks)


def refusal(host: str, address: Address, private: PrivateHosts) -> str | None:
    """Why nobody may go to this address under this (normalised) name; None if one may."""
    if is_metadata(address):
        return "is a cloud's metadata service"
    if private.include(host, address):
        return None
    if not is_public(address):
        return "is not a public address"
    return "is an address of this machine" if is_own(address) else None
