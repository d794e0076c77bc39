"""Named tunnels, and which port of a session a name leads to: of a tunnel, or of a service."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from holdfast.concurrency import Bounded
from holdfast.errors import BadInput, Forbidden, ServiceNotFound, TunnelNotFound
from holdfast.gateway.addresses import port_of
from holdfast.records.gateway import MOST_NAME, PUBLIC, HostHeader, TunnelRow, is_name
from holdfast.records.services import TERMINAL, USUAL, ServiceSpec
from holdfast.records.sessions import SessionRow
from holdfast.sessions.service import SessionService
from holdfast.store import TunnelStore

log = structlog.get_logger(__name__)

MAX_TUNNELS = 50
REMEMBER_SECONDS = 3.0
_REMEMBERED = 10_000
NEW_SECONDS = 2.0
"""For so long a session certainly has no tunnels but those of this daemon's making."""


@dataclass(frozen=True, slots=True)
class PortTarget:
    """A port of a session, and what the program there sees as its host name."""

    port: int
    host: HostHeader | None = None
    service: ServiceSpec | None = None
    """The service that it is, which is started when somebody comes."""

    @property
    def is_ours(self) -> bool:
        """Whether it is a service that we offer, and no program of the session's own."""
        return self.service is not None


class Tunnels:
    """Names of ports. ``closed`` are the ports that nobody may come in by: our own ways out are there."""

    def __init__(
        self, store: TunnelStore, sessions: SessionService, closed: frozenset[int], clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._closed = closed
        self._clock = clock
        self._known: Bounded[str, tuple[float, dict[str, PortTarget]]] = Bounded(_REMEMBERED)

    async def put(self, session_id: str, name: str, port: int, host: HostHeader | None = None, /) -> TunnelRow:
        """Give a port a name, or a name another port. The same call twice changes nothing.

        Raises ``BadInput``, ``Forbidden`` for a port of ours, ``TooManyTunnels``.
        """
        if not is_name(name) or name in USUAL or name.startswith(PUBLIC):
            raise BadInput(
                f"name: must be 1 to {MOST_NAME} of a-z, 0-9 and single hyphens, begin with a letter, "
                f"not with {PUBLIC}, and be none of {', '.join(sorted(USUAL))}"
            )
        self.check_port(port)
        session = await self._sessions.get(session_id)
        if any(service.name == name for service in session.spec.services):
            raise BadInput(f"name: {name} is a service of this session; take another name")
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
        return tuple(dict.fromkeys((TERMINAL, *await self._names_of(session_id))))

    async def labels_of_new(self, session: SessionRow, /) -> Sequence[str]:
        """Return those of a session that a create has returned. One that is certainly new has no tunnels, and nothing
        is looked up."""
        if session.id not in self._known and self._clock() - session.created_at < NEW_SECONDS:
            return (TERMINAL, *sorted(service.name for service in session.spec.services))
        return await self.labels(session.id)

    def check_port(self, port: int) -> None:
        """Raise ``Forbidden`` for a port that leads to the daemon itself, and to no program of the session."""
        if self.is_closed(port):
            raise Forbidden(f"port {port} of a sandbox is its own way to the daemon; nobody comes in by it")

    def is_closed(self, port: int) -> bool:
        return port in self._closed

    async def target(self, session_id: str, label: str) -> PortTarget:
        """Return what a label leads to: a port, a service, or a tunnel.

        Raises ``TunnelNotFound``, ``ServiceNotFound`` for the name of a service that the session has not, or
        ``Forbidden`` for a port of ours.
        """
        port = port_of(label)
        target = await self._named(session_id, label) if port is None else PortTarget(port)
        self.check_port(target.port)
        return target

    async def _named(self, session_id: str, label: str) -> PortTarget:
        target = (await self._names_of(session_id)).get(label)
        if target is None and label in USUAL:
            raise ServiceNotFound(f"the session has no service {label}: its image declares none of that name")
        if target is None:
            raise TunnelNotFound("the session has no tunnel of that name; GET …/tunnels shows those there are")
        return target

    async def _names_of(self, session_id: str) -> dict[str, PortTarget]:
        known = self._known.get(session_id)
        if known is None or self._clock() - known[0] > REMEMBER_SECONDS:
            known = self._known[session_id] = (self._clock(), await self._look_up(session_id))
        return known[1]

    async def _look_up(self, session_id: str) -> dict[str, PortTarget]:
        """Return what each name leads to, services first: a tunnel that came with a thread may be called like one."""
        session = await self._sessions.get(session_id)
        services = {one.name: PortTarget(one.port, service=one) for one in session.spec.services}
        tunnels = {row.name: PortTarget(row.port, row.host) for row in await self._store.of_session(session_id)}
        return {**dict(sorted(services.items())), **tunnels, **services}
