"""Ways out of a sandbox: ports on its own loopback address whose connections come out at the host.

The broker has several, for allowed hosts and for models. It lives above us, so the daemon hands them in.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.errors import BadInput
from holdfast.link.link import Link
from holdfast.records.network import NetworkPolicy
from holdfast.records.spec import SessionSpec


class WayOut(Protocol):
    """One of them. It is opened whenever a sandbox's runner has started, and attached to by each new daemon."""

    def check(self, policy: NetworkPolicy, /) -> None:
        """Raises ``BadInput`` for a policy that can never be fulfilled here."""
        ...

    def environment(self, policy: NetworkPolicy, /) -> Mapping[str, str]:
        """Return what programs in the sandbox must be told, to find their way out."""
        ...

    def attach(self, link: Link, spec: SessionSpec, /) -> None:
        """Take what comes out of this sandbox from now on. Safe to repeat; also for a sandbox that is running."""
        ...

    async def open(self, link: Link, spec: SessionSpec, /) -> None:
        """Have the runner open its side, before the first command runs. Safe to repeat; it stays open for ever."""
        ...

    def detach(self, session_id: str, /) -> None:
        """End what is under way. Safe to repeat."""
        ...


class WaysOut:
    """Several, as one; or none, and then no policy but none and full."""

    def __init__(self, ways: Sequence[WayOut] = ()) -> None:
        self._ways = ways

    def check(self, policy: NetworkPolicy, /) -> None:
        if policy.allow is not None and not self._ways:
            raise BadInput("network.allow: this daemon has no egress proxy")
        for way in self._ways:
            way.check(policy)

    def environment(self, policy: NetworkPolicy, /) -> Mapping[str, str]:
        return {name: value for way in self._ways for name, value in way.environment(policy).items()}

    def attach(self, link: Link, spec: SessionSpec, /) -> None:
        for way in self._ways:
            way.attach(link, spec)

    async def open(self, link: Link, spec: SessionSpec, /) -> None:
        for way in self._ways:
            await way.open(link, spec)

    def detach(self, session_id: str, /) -> None:
        for way in self._ways:
            way.detach(session_id)
