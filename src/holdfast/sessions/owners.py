"""Whose session is it? Asked on every call of a key that sees only its own, so the answer is kept in memory."""

from holdfast.callers.types import Caller
from holdfast.store import SessionStore
from holdfast.store.sessions.rows import no_session

_MOST = 100_000
"""Sessions that are remembered; far more than a machine holds, so forgetting them all at once is good enough."""


class Owners:
    """Remembers which session ids were found to be whose. A session's owner never changes once somebody has it."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._known: dict[str, str] = {}

    async def admit(self, session_id: str, caller: Caller) -> None:
        """Returns if the caller may know of this session; else raises ``SessionNotFound``, as if there were none.

        Only a match is remembered. Everything else asks the database each time, so that a session of somebody else
        takes as long as one that does not exist.
        """
        if caller.sees_all or self._known.get(session_id) == caller.owner:
            return
        if await self._store.owner(session_id) != caller.owner:
            raise no_session(session_id)
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[session_id] = caller.owner
