"""How often a service has failed lately: one that does so again and again is left alone for a while."""

from holdfast.concurrency import Bounded
from holdfast.errors import ServiceKeepsFailing

MOST = 5
WITHIN_SECONDS = 600.0
_REMEMBERED = 10_000


class Failures:
    """By session and name. Time is that of the event loop, which nobody can set."""

    def __init__(self) -> None:
        self._at: Bounded[tuple[str, str], list[float]] = Bounded(_REMEMBERED)

    def add(self, session_id: str, name: str, now: float) -> None:
        recent = self._recent(session_id, name, now)
        self._at[session_id, name] = [*recent, now][-MOST:]

    def forget(self, session_id: str, name: str) -> None:
        self._at.pop((session_id, name), None)

    def check(self, session_id: str, name: str, now: float, reason: str | None) -> None:
        """Raise ``ServiceKeepsFailing`` if it had better not be started now."""
        recent = self._recent(session_id, name, now)
        if len(recent) < MOST:
            return
        wait = recent[0] + WITHIN_SECONDS - now
        last = f" The last time: {reason}" if reason else ""
        raise ServiceKeepsFailing(
            f"the service {name} has failed {MOST} times within {WITHIN_SECONDS / 60:.0f} minutes; it is not started "
            f"again for {wait:.0f} s, unless you stop it (DELETE …/services/{name}), which forgets that.{last}"
        )

    def _recent(self, session_id: str, name: str, now: float) -> list[float]:
        return [at for at in self._at.get((session_id, name), []) if at > now - WITHIN_SECONDS]
