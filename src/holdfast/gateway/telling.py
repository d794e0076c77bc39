"""Tells of visitors: counters, a line in the log, and events, at a rate that no visitor and no sandbox can raise.

The audit log is the lines ``gateway.link`` and ``gateway.preview`` (a way in was made, by whose key),
``gateway.entered`` (it was used), ``gateway.opened`` (somebody uses the program) and ``gateway.refused``. None has a
secret in it.
"""

from collections.abc import Callable, Mapping

import structlog

from holdfast.callers.ring import KeyRing
from holdfast.concurrency import Bounded
from holdfast.errors import HoldfastError
from holdfast.gateway.addresses import SessionAddress
from holdfast.gateway.admission import Visitor
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.records.gateway import VisitRow
from holdfast.sessions.service import SessionService
from holdfast.sessions.session import Session
from holdfast.sessions.telling.event_kinds import EventKind

log = structlog.get_logger(__name__)

EVERY_SECONDS = 60.0
"""The same visitor at the same place, and the same refusal at the same place, are told once in so long."""
MOST_REFUSALS = 60
"""Lines in a minute about sessions that do not run here: anybody can make up their names."""
MOST_EVENTS = 60
"""In an hour, of one session and kind; the log has more, and the counters have all."""
_HOUR = 3600.0
_REMEMBERED = 5000


class Telling:
    def __init__(
        self, metrics: GatewayMetrics, clock: Callable[[], float], sessions: SessionService, keys: KeyRing
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._sessions = sessions
        self._keys = keys
        self._minute, self._refusals = 0.0, 0
        self._told: Bounded[tuple[str, ...], float] = Bounded(_REMEMBERED)
        self._events: Bounded[tuple[str, EventKind], tuple[float, int]] = Bounded(_REMEMBERED)

    def entered(self, visit: VisitRow) -> None:
        """A link or a token was used, and a visit has begun."""
        by = "token" if visit.link_id is None else "link"
        self._metrics.entered.labels(by).inc()
        log.info(
            "gateway.entered",
            session_id=visit.session_id,
            label=visit.label,
            by=by,
            link=visit.link_id,
            key=self._key_name(visit.key_id),
            visitor=visit.visitor,
        )

    def opened(self, place: SessionAddress, visitor: Visitor, session: Session) -> None:
        """Somebody uses what is there."""
        self._metrics.requests.inc()
        if self._is_new("opened", place.session_id, visitor.label, visitor.name):
            told = {"label": visitor.label, **self._who(visitor)}
            log.info("gateway.opened", session_id=session.id, **told)
            self._tell(EventKind.GATEWAY_OPENED, session.id, told)

    def refused(self, place: SessionAddress, error: HoldfastError) -> None:
        """Somebody was turned away."""
        self._metrics.refused.labels(error.code).inc()
        if error.status not in (401, 403):
            return
        told = {"label": place.label, "code": error.code}
        if self._sessions.ports.awake(place.session_id) is None:
            if self._may_tell_of_strangers():
                log.info("gateway.refused", session_id=place.session_id, **told)
        elif self._is_new("refused", place.session_id, error.code):
            log.info("gateway.refused", session_id=place.session_id, **told)
            self._tell(EventKind.GATEWAY_REFUSED, place.session_id, told)

    def _who(self, visitor: Visitor) -> dict[str, str | None]:
        """Return by what somebody has come, by whose key that was made, and for whom."""
        by, _, name = visitor.name.partition(":")
        if visitor.caller is not None:
            return {"by": by, "key": visitor.caller.name, "visitor": visitor.caller.owner}
        if visitor.visit is not None:
            key_id, link = visitor.visit.key_id, visitor.visit.link_id
            return {"by": by, "key": self._key_name(key_id), "link": link, "visitor": visitor.visit.visitor}
        if visitor.link is not None:
            made = visitor.link
            return {"by": by, "key": self._key_name(made.key_id), "link": made.id, "visitor": made.name}
        key_id = None if visitor.token is None else visitor.token.key_id
        return {"by": by, "key": self._key_name(key_id), "visitor": name}

    def _key_name(self, key_id: str | None) -> str | None:
        caller = None if key_id is None else self._keys.by_id(key_id)
        return None if caller is None else caller.name

    def _tell(self, kind: EventKind, session_id: str, data: Mapping[str, object]) -> None:
        """Add an event, unless the session has had as many as it may."""
        now = self._clock()
        since, count = self._events.get((session_id, kind), (now, 0))
        if now - since >= _HOUR:
            since, count = now, 0
        self._events[session_id, kind] = (since, count + 1)
        if count < MOST_EVENTS:
            self._sessions.tell(kind, session_id, data)

    def _may_tell_of_strangers(self) -> bool:
        now = self._clock()
        if now - self._minute >= 60:
            self._minute, self._refusals = now, 0
        self._refusals += 1
        return self._refusals <= MOST_REFUSALS

    def _is_new(self, *what: str) -> bool:
        now = self._clock()
        if now - self._told.get(what, -EVERY_SECONDS) < EVERY_SECONDS:
            return False
        self._told[what] = now
        return True
