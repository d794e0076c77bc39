"""Decides which addresses a sandbox may reach: public ones, and internal ones only if the operator names them.

The tables are in ``holdfast.network.addresses``; this is what the settings of the daemon make of them.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.network.addresses import METADATA_NAMES, is_metadata, is_never, is_public
from holdfast.network.surroundings import Surroundings, is_own
from holdfast.records.host_pattern import Address, HostPattern

SETTING = "egress_private_hosts"


@dataclass(frozen=True, slots=True)
class AddressRefusal:
    """The reason why nobody may reach an address, and a remedy. Both are parts of a sentence."""

    why: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.why}; {self.remedy}"


_NEVER_OPEN = "no setting allows it"
_NAME_IT = f"the operator can allow it by naming it in {SETTING}, in the daemon's configuration"


@dataclass(frozen=True, slots=True)
class PrivateHosts:
    """The internal hosts that the operator allows: by name (``*.`` as in allow-lists), address or block."""

    names: tuple[HostPattern, ...] = ()
    blocks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
    around: Surroundings = field(default_factory=Surroundings, compare=False)

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
        """Say whether the operator allows this address; ``host`` must be normalised."""
        return any(pattern.names(host) for pattern in self.names) or any(address in block for block in self.blocks)


def refusal_of_name(host: str) -> AddressRefusal | None:
    """Return the reason why nobody may use this (normalised) name, wherever it leads; None if one may."""
    return AddressRefusal("is a cloud's metadata service", _NEVER_OPEN) if host in METADATA_NAMES else None


def refusal(host: str, address: Address, private: PrivateHosts) -> AddressRefusal | None:
    """Return the reason why nobody may reach this address under this (normalised) name; None if one may."""
    if is_metadata(address):
        return AddressRefusal("is a cloud's metadata service", _NEVER_OPEN)
    if is_never(address):
        return AddressRefusal("is a link-local, multicast or broadcast address", _NEVER_OPEN)
    if private.include(host, address):
        return None
    if not is_public(address):
        return AddressRefusal("is not a public address", _NAME_IT)
    if is_own(address):
        return AddressRefusal("is an address of this machine", _NAME_IT)
    if private.around.include(address):
        return AddressRefusal("is in a network that this machine is part of", _NAME_IT)
    return None
