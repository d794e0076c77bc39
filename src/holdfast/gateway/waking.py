"""Which requests wake a session, and what those get that do not wait for it.

A person who goes to a page, a request that changes something, and a program with a key wake it. A background request of
a page, and its WebSocket, do not: a tab that somebody has forgotten must not keep a session awake.
"""

import asyncio

from holdfast.concurrency import seen
from holdfast.errors import Asleep, SandboxLost
from holdfast.gateway.rules import RequestFacts
from holdfast.records.machine import Status
from holdfast.sessions.service import SessionService
from holdfast.sessions.session import Session, unusable

PATIENCE_SECONDS = 0.3
"""A person who waits longer is shown a page meanwhile."""
WAKE_SECONDS = 120.0


class Waking:
    """Wakes sessions, once for any number of requests."""

    def __init__(self, sessions: SessionService) -> None:
        self._sessions = sessions
        self._under_way: dict[str, asyncio.Future[Session]] = {}

    async def awake(self, session_id: str, request: RequestFacts, *, by_program: bool) -> Session | None:
        """Return the session when it is awake; None where a person had better wait at a page of ours.

        Raises ``Asleep`` if it sleeps and this request does not wake it, or the error that its state calls for.
        """
        session = self._sessions.ports.awake(session_id)
        if session is not None:
            return session
        if not is_on_purpose(request, by_program=by_program):
            row = await self._sessions.get(session_id)
            if row.status in (Status.PAUSED, Status.PAUSING, Status.RESUMING):
                raise Asleep("the session is asleep; going to its page wakes it, a request in the background does not")
            if row.status is not Status.ACTIVE:
                raise unusable(row)
        waking = self._wake(session_id)
        patience = PATIENCE_SECONDS if request.is_navigation and not by_program else WAKE_SECONDS
        done, _ = await asyncio.wait([waking], timeout=patience)
        if done:
            return waking.result()
        if patience == PATIENCE_SECONDS:
            return None
        raise SandboxLost(f"the session did not wake within {WAKE_SECONDS:.0f} s")

    def is_awake(self, session: Session) -> bool:
        """Say whether this is still the session that can be used now: one that slept in between is another."""
        return self._sessions.ports.awake(session.id) is session

    def _wake(self, session_id: str) -> asyncio.Future[Session]:
        waking = self._under_way.get(session_id)
        if waking is None:
            waking = seen(asyncio.ensure_future(self._sessions.ports.wake(session_id)))
            self._under_way[session_id] = waking
            waking.add_done_callback(lambda _: self._under_way.pop(session_id, None))
        return waking


def is_on_purpose(request: RequestFacts, *, by_program: bool) -> bool:
    """Say whether somebody wants this request now: it wakes the session, and counts as a use of it."""
    return by_program or request.is_navigation or request.is_unsafe
