"""The one list of addresses that are not the internet, for everything that connects on behalf of others.

    NEVER      nobody may reach these, and no setting opens them: metadata services of clouds, link-local, multicast
    internal   everything else that is not public: reached only where the operator has named it

Used by the egress proxy, by ``network: full`` and by the daemon's own clients. The tables are IANA's registries of
special-purpose addresses, written out: what Python calls "global" differs from version to version. Pure.
"""

import ipaddress
from collections.abc import Iterable, Sequence

IPv4, IPv6 = ipaddress.IPv4Address, ipaddress.IPv6Address
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Block = ipaddress.IPv4Network | ipaddress.IPv6Network

METADATA = tuple(
    ipaddress.ip_network(block)
    for block in (
        "169.254.169.254",  # AWS, Azure, Google, Oracle, and most others
        "169.254.170.2",  # AWS, credentials of containers
        "169.254.170.23",  # AWS, identities of pods
        "169.254.0.23",  # Tencent
        "169.254.42.42",  # Scaleway
        "fd00:ec2::/32",  # AWS: metadata, credentials, time, names
        "fd00:42::42",  # Scaleway
        "fd20:ce::254",  # Google
        "fe80::a9fe:a9fe",  # OpenStack
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle
        "168.63.129.16",  # Azure; looks public
    )
)
"""The metadata services of clouds, which give a machine its own secrets."""
METADATA_NAMES = frozenset(
    {
        "metadata",
        "metadata.google.internal",
        "metadata.goog",
        "instance-data",
        "instance-data.ec2.internal",
        "metadata.tencentyun.com",
        "metadata.platformequinix.com",
    }
)

NEVER = METADATA + tuple(
    ipaddress.ip_network(block)
    for block in (
        "0.0.0.0/8",  # this network; some systems take it for loopback
        "169.254.0.0/16",  # link-local
        "224.0.0.0/4",  # multicast
        "255.255.255.255",  # broadcast
        "::",  # unspecified
        "64:ff9b:1::/48",  # NAT64 of the local network: any IPv4 address, in a form that only it knows
        "fe80::/10",  # link-local
        "ff00::/8",  # multicast
    )
)
"""Metadata services and link-local addresses: on a local link, machines trust everyone who can reach them."""

INTERNAL_4 = tuple(
    ipaddress.IPv4Network(block)
    for block in (
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers
        "127.0.0.0/8",  # loopback
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "240.0.0.0/4",  # reserved
    )
)
_PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
"""All other addresses are internal: loopback, unique local (fc00::/7), site-local (fec0::/10), discard (100::/64), …"""
_INTERNAL_6 = tuple(
    ipaddress.IPv6Network(block)
    for block in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def carried(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one stands for (mapped, compatible, 6to4, NAT64), or the address itself."""
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


def is_metadata(address: Address) -> bool:
    return _within(address, METADATA)


def is_never(address: Address) -> bool:
    """Say whether nobody may reach this address, in whatever form it is written."""
    return _within(address, NEVER)


def is_public(address: Address) -> bool:
    meant = carried(address)
    if _within(address, NEVER):
        return False
    if isinstance(meant, IPv4):
        return not any(meant in block for block in INTERNAL_4)
    return meant in _PUBLIC_6 and not any(meant in block for block in _INTERNAL_6)


def _within(address: Address, blocks: Sequence[Block]) -> bool:
    meant = carried(address)
    return any(address in block or meant in block for block in blocks)


def closed_blocks(named: Iterable[Block], around: Iterable[Block], own: Iterable[Address]) -> list[str]:
    """Return every IPv4 block that a network without a list must not lead to, as ``ip`` wants them.

    ``named`` is what the operator opens; ``around`` are the networks next to this host, ``own`` its own addresses. Each
    of the latter must be named by itself to be opened.
    """
    opened = [block for block in named if isinstance(block, ipaddress.IPv4Network)]
    lan = [block for block in around if isinstance(block, ipaddress.IPv4Network)]
    closed = _without([*INTERNAL_4, *lan], opened)
    never = [block for block in NEVER if isinstance(block, ipaddress.IPv4Network)]
    mine = [ipaddress.IPv4Network(one) for one in own if isinstance(one, IPv4)]
    closed += [*never, *(block for block in mine if block not in opened)]
    return [str(block) for block in ipaddress.collapse_addresses(closed)]


def _without(
    blocks: Iterable[ipaddress.IPv4Network], holes: Iterable[ipaddress.IPv4Network]
) -> list[ipaddress.IPv4Network]:
    left = list(blocks)
    for hole in holes:
        rest: list[ipaddress.IPv4Network] = []
        for block in left:
            if hole.subnet_of(block):
                rest += block.address_exclude(hole)
            elif not block.subnet_of(hole):
                rest.append(block)
        left = rest
    return left
