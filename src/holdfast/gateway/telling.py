"""Tells of visitors: counters, a line in the log, and events, at a rate that no visitor can raise."""

from collections.abc import Callable, Mapping

import structlog

from holdfast.concurrency import Bounded
from holdfast.errors import HoldfastError
from holdfast.gateway.addresses import Place
from holdfast.gateway.admission import Visitor
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.sessions.session import Session
from holdfast.sessions.telling.event_kinds import EventKind

log = structlog.get_logger(__name__)

EVERY_SECONDS = 60.0
"""The same visitor at the same place, and the same refusal at the same place, are told once in so long."""
MOST_REFUSALS = 60
"""In a minute, of all places together."""
_REMEMBERED = 5000

Tell = Callable[[EventKind, str, Mapping[str, object]], None]


class Telling:
    """``tell`` adds an event of a session that is awake, without waiting for it."""

    def __init__(self, metrics: GatewayMetrics, clock: Callable[[], float], tell: Tell) -> None:
        self._metrics = metrics
        self._clock = clock
        self._tell = tell
        self._minute, self._refusals = 0.0, 0
        self._told: Bounded[tuple[str, ...], float] = Bounded(_REMEMBERED)

    def entered(self, place: Place, by: str) -> None:
        self._metrics.entered.labels(by).inc()
        log.info("gateway.entered", session_id=place.session_id, label=place.label, by=by)

    def opened(self, place: Place, visitor: Visitor, session: Session) -> None:
        """Somebody uses what is there."""
        self._metrics.requests.inc()
        if self._is_new("opened", place.session_id, visitor.label, visitor.name):
            kind = visitor.name.partition(":")[0]
            name = visitor.visit.visitor if visitor.visit is not None else visitor.name
            log.info("gateway.opened", session_id=session.id, label=visitor.label, by=kind, visitor=name)
            self._tell(EventKind.GATEWAY_OPENED, session.id, {"label": visitor.label, "by": kind, "visitor": name})

    def refused(self, place: Place, error: HoldfastError) -> None:
        """Somebody was turned away."""
        self._metrics.refused.labels(error.code).inc()
        if error.status in (401, 403) and self._may_tell() and self._is_new("refused", place.session_id, error.code):
            log.info("gateway.refused", session_id=place.session_id, label=place.label, code=error.code)
            data = {"label": place.label, "code": error.code}
            self._tell(EventKind.GATEWAY_REFUSED, place.session_id, data)

    def _may_tell(self) -> bool:
        """Say whether a stranger may cause one more line: anybody can make up session ids."""
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
