"""Named tunnels, and which port of a session a name leads to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from holdfast.concurrency import Bounded
from holdfast.errors import BadInput, Forbidden, TunnelNotFound
from holdfast.gateway.addresses import port_of
from holdfast.records.gateway import MOST_NAME, PUBLIC, HostHeader, TunnelRow, is_name
from holdfast.records.services import TERMINAL
from holdfast.records.sessions import SessionRow
from holdfast.sessions.service import SessionService
from holdfast.store import TunnelStore

log = structlog.get_logger(__name__)

MAX_TUNNELS = 50
REMEMBER_SECONDS = 3.0
_REMEMBERED = 10_000
SERVICES = frozenset({"ide", "desktop", "terminal"})
"""Names that are taken."""
NEW_SECONDS = 2.0
"""For so long a session certainly has no tunnels but those of this daemon's making."""


@dataclass(frozen=True, slots=True)
class Target:
    """A port of a session, and what the program there sees as its host name."""

    port: int
    host: HostHeader | None = None
    is_ours: bool = False
    """It is a service that we offer, and no program of the session's own."""


class Tunnels:
    """Names of ports. ``closed`` are the ports that nobody may come in by: our own ways out are there."""

    def __init__(
        self, store: TunnelStore, sessions: SessionService, closed: frozenset[int], clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._closed = closed
        self._clock = clock
        self._known: Bounded[str, tuple[float, dict[str, TunnelRow]]] = Bounded(_REMEMBERED)

    async def put(self, session_id: str, name: str, port: int, host: HostHeader | None = None, /) -> TunnelRow:
        """Give a port a name, or a name another port. The same call twice changes nothing.

        Raises ``BadInput``, ``Forbidden`` for a port of ours, ``TooManyTunnels``.
        """
        if not is_name(name) or name in SERVICES or name.startswith(PUBLIC):
            raise BadInput(
                f"name: must be 1 to {MOST_NAME} of a-z, 0-9 and single hyphens, begin with a letter, "
                f"not with {PUBLIC}, and be none of {', '.join(sorted(SERVICES))}"
            )
        self.check_port(port)
        session = await self._sessions.get(session_id)
        row = TunnelRow(session_id=session_id, name=name, port=port, host=host, created_at=self._clock())
        row = await self._store.put(row, owner=session.owner, most=MAX_TUNNELS)
        self._known.pop(session_id, None)
        await self._names_of(session_id)  # so that ``labels_of_new`` knows it
        log.info("gateway.tunnel", session_id=session_id, name=name, port=port)
        return row

    async def remove(self, session_id: str, name: str, /) -> None:
        """Raises ``TunnelNotFound``."""
        session = await self._sessions.get(session_id)
        await self._store.remove(session_id, name, owner=session.owner, now=self._clock())
        self._known.pop(session_id, None)
        log.info("gateway.tunnel.removed", session_id=session_id, name=name)

    async def list(self, session_id: str, /) -> list[TunnelRow]:
        return await self._store.of_session(session_id)

    async def labels(self, session_id: str, /) -> Sequence[str]:
        """Return the names by which a session is reached: of its services, and of its tunnels."""
        return await self.labels_of(await self._sessions.get(session_id))

    async def labels_of(self, session: SessionRow, /) -> Sequence[str]:
        """Return those of a session whose row is at hand."""
        return tuple(dict.fromkeys((*_services_of(session), *await self._names_of(session.id))))

    async def labels_of_new(self, session: SessionRow, /) -> Sequence[str]:
        """Return those of a session that a create has returned. One that is certainly new has no tunnels, and nothing
        is looked up."""
        if session.id not in self._known and self._clock() - session.created_at < NEW_SECONDS:
            return _services_of(session)
        return await self.labels_of(session)

    def check_port(self, port: int) -> None:
        """Raise ``Forbidden`` for a port that leads to the daemon itself, and to no program of the session."""
        if self.is_closed(port):
            raise Forbidden(f"port {port} of a sandbox is its own way to the daemon; nobody comes in by it")

    def is_closed(self, port: int) -> bool:
        return port in self._closed

    async def target(self, session_id: str, label: str) -> Target:
        """Return what a label leads to. Raises ``TunnelNotFound``, or ``Forbidden`` for a port of ours."""
        port = port_of(label)
        if port is None:
            row = (await self._names_of(session_id)).get(label)
            if row is None:
                raise TunnelNotFound("the session has no tunnel of that name; GET …/tunnels shows those there are")
            return Target(row.port, row.host)
        self.check_port(port)
        return Target(port)

    async def _names_of(self, session_id: str) -> dict[str, TunnelRow]:
        known = self._known.get(session_id)
        if known is None or self._clock() - known[0] > REMEMBER_SECONDS:
            rows = {row.name: row for row in await self._store.of_session(session_id)}
            known = self._known[session_id] = (self._clock(), rows)
        return known[1]


def _services_of(session: SessionRow) -> Sequence[str]:
    return (TERMINAL, *(service.name for service in session.spec.services))
