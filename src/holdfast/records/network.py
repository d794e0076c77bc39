"""A session's network policy: nothing, everything, or a list of hosts that the broker lets it reach.

On the wire and in the row it is ``"none"``, ``"full"`` or ``{"allow": ["pypi.org", …]}``. With a list, the sandbox has
no network of its own either: its only way out is the broker's proxy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from holdfast.errors import BadInput
from holdfast.records.host_pattern import HostPattern
from holdfast.records.limits import Network

MAX_PATTERNS = 256
MAX_PATTERN = 300

Wire = str | dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """What a session may reach. ``allow`` is None unless there is a list."""

    network: Network
    """What the driver must give the sandbox."""
    allow: tuple[HostPattern, ...] | None = None

    NONE: ClassVar["NetworkPolicy"]
    FULL: ClassVar["NetworkPolicy"]

    @classmethod
    def allowing(cls, patterns: Sequence[str]) -> "NetworkPolicy":
        """Make a policy with a list. Raises ``BadInput`` that names the pattern which is none."""
        if not 1 <= len(patterns) <= MAX_PATTERNS:
            raise BadInput(f"network.allow: needs 1 to {MAX_PATTERNS} hosts; to allow none, say none")
        return cls(Network.NONE, tuple(_parsed(pattern) for pattern in patterns))

    def allows(self, host: str, port: int) -> bool:
        """Say whether the list has this (normalised) host."""
        return any(pattern.matches(host, port) for pattern in self.allow or ())

    def to_wire(self) -> Wire:
        if self.allow is None:
            return str(self.network)
        return {"allow": [str(pattern) for pattern in self.allow]}

    @classmethod
    def from_wire(cls, value: object) -> "NetworkPolicy":
        """Read a policy from JSON. Raises ``BadInput`` for what is none of the three forms."""
        if isinstance(value, str) and value in tuple(Network):
            return cls(Network(value))
        if isinstance(value, Mapping) and set(value) == {"allow"}:
            patterns = value["allow"]
            if isinstance(patterns, list) and all(isinstance(one, str) for one in patterns):
                return cls.allowing(patterns)
        raise BadInput('network: must be "none", "full" or {"allow": ["host", …]}')


NetworkPolicy.NONE = NetworkPolicy(Network.NONE)
NetworkPolicy.FULL = NetworkPolicy(Network.FULL)


def _parsed(text: str) -> HostPattern:
    shown = text if len(text) <= 80 else text[:77] + "..."
    if len(text) > MAX_PATTERN:
        raise BadInput(f"network.allow: {shown!r} is too long")
    try:
        return HostPattern.parse(text)
    except ValueError as error:
        raise BadInput(f"network.allow: {shown!r} {error}") from None
