"""Sessions that this daemon holds a link to: their last activity, and what is under way in them.

Using a session costs no database write: activity is noted here and written in batches. A crash loses at most a second
of it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from holdfast.errors import HoldfastError, SandboxLost, SessionGone, WrongState
from holdfast.link.link import Link
from holdfast.records.machine import Status
from holdfast.records.sessions import SessionRow
from holdfast.sessions.use.oom import OomWatch

Clock = Callable[[], float]
"""Unix time; tests bring their own."""


class LiveSession:
    """One active session."""

    def __init__(
        self,
        session_id: str,
        link: Link,
        ttl_seconds: int,
        cwd: str,
        active: float,
        expires: float,
        oom: OomWatch,
    ) -> None:
        self.session_id = session_id
        self.link = link
        self.oom = oom
        self.cwd = cwd
        self.last_activity_at = active
        self.expires_at = expires
        self.users = 0
        self._ttl_seconds = ttl_seconds
        self._shells: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.unsaved = False

    def touch(self, now: float) -> None:
        """It is being used: its time starts anew."""
        self.last_activity_at = max(self.last_activity_at, now)
        self.expires_at = max(self.expires_at, now + self._ttl_seconds)
        self.unsaved = True

    def move_times(self, seconds: float, now: float) -> None:
        """The clock was set by so much. What was noted after that needs no moving, so nothing gets later than now."""
        self.last_activity_at = min(self.last_activity_at + seconds, now)
        self.expires_at = min(self.expires_at + seconds, now + self._ttl_seconds)

    def shell(self, name: str) -> asyncio.Lock:
        """Held while a command runs in that shell: commands of one shell run one after the other."""
        return self._shells[name]


Usable = Callable[[str], Awaitable[LiveSession]]
"""The live session with this id; or the error that its state calls for."""


class LiveSessions:
    """All of them, by id."""

    def __init__(self) -> None:
        self._by_id: dict[str, LiveSession] = {}

    def add(self, session: LiveSession) -> None:
        self._by_id[session.session_id] = session

    def get(self, session_id: str) -> LiveSession | None:
        return self._by_id.get(session_id)

    def refreshed(self, row: SessionRow) -> SessionRow:
        """The row with what this daemon knows better: the latest directory, activity and time of expiry."""
        live = self._by_id.get(row.id)
        if live is None:
            return row
        return replace(
            row,
            cwd=live.cwd,
            expires_at=max(live.expires_at, row.expires_at),
            last_activity_at=max(live.last_activity_at, row.last_activity_at),
        )

    def remove(self, session_id: str) -> None:
        session = self._by_id.pop(session_id, None)
        if session is not None:
            session.oom.close()

    def close(self) -> None:
        for session_id in list(self._by_id):
            self.remove(session_id)

    def look_for_kills(self) -> None:
        """Also in sessions that run no command now: something in the background may have been killed."""
        for session in self._by_id.values():
            session.oom.look()

    def count(self) -> int:
        return len(self._by_id)

    def all(self) -> list[LiveSession]:
        return list(self._by_id.values())

    def move_times(self, seconds: float, now: float) -> None:
        """The clock was set: nobody was used earlier or later because of that."""
        for session in self._by_id.values():
            session.move_times(seconds, now)

    def touch_busy(self, now: float) -> None:
        """What is in use does not expire, however long it takes."""
        for session in self._by_id.values():
            if session.users:
                session.touch(now)

    def take_unsaved(self, session_id: str | None = None) -> list[tuple[str, float, float, str]]:
        """Rows for ``SessionStore.touch``, of all or of one; give them back with ``put_back`` if that fails."""
        unsaved = [
            session for session in self._by_id.values() if session.unsaved and session_id in (None, session.session_id)
        ]
        for session in unsaved:
            session.unsaved = False
        return [(s.session_id, s.last_activity_at, s.expires_at, s.cwd) for s in unsaved]

    def put_back(self, rows: list[tuple[str, float, float, str]]) -> None:
        for session_id, *_rest in rows:
            session = self._by_id.get(session_id)
            if session is not None:
                session.unsaved = True


@contextmanager
def in_use(session: LiveSession, clock: Clock) -> Iterator[None]:
    """Counts as activity at its beginning and at its end, and keeps the reaper away in between.

    What is lost because the session stands still says so.
    """
    session.users += 1
    session.touch(clock())
    try:
        yield
    except SandboxLost:
        if session.link.held is not None:
            raise session.link.held from None
        raise
    finally:
        session.users -= 1
        session.touch(clock())


def unusable(row: SessionRow) -> HoldfastError:
    """Return the error that says why a session in this state cannot be used."""
    if row.status in (Status.DESTROYING, Status.DESTROYED):
        return SessionGone(f"session {row.id} is {row.status}: {row.reason}; create a new one")
    if row.status == Status.ERROR:
        return WrongState(
            f"session {row.id} is in error ({row.reason}): {row.error}; bring it back from its files with "
            "POST …/restore (`holdfast wake --dead`), or destroy it"
        )
    return WrongState(f"session {row.id} is {row.status}, not active; try again")
