"""Leases on threads: who may work on one, who takes over from the dead, and who is idle enough to be put to sleep.

A lease lasts ``ttl`` seconds from now by the one clock (see ``thread_rows``); no daemon's own clock comes into it.
"""

from collections.abc import Collection
from dataclasses import dataclass

from holdfast.store.database import Database
from holdfast.store.thread_rows import Lease, ThreadRow
from holdfast.store.thread_watch import ThreadWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Threads that have a session, are in one of these sleep states, and have had nothing to do for so long.

    A thread with a queued message, an open request or a turn that has not ended is never idle.
    """

    sleep_states: Collection[str]
    idle_for: float
    platforms: Collection[str] | None = None
    """None: all but ``except_platforms``."""
    except_platforms: Collection[str] = ()


class ThreadLeases:
    """Takes and gives back leases. Raises what ``ThreadStore`` raises when the database fails."""

    def __init__(self, database: Database, watch: ThreadWatch) -> None:
        self._database = database
        self._watch = watch

    async def take(self, id: str, *, owner: str, ttl: float) -> ThreadRow:
        """Take the lease if it is free, has run out, or is already ours. ``row.lease`` is what later writes need.

        Each success adds one to the generation: whoever had it before is refused from then on, also if that was an
        earlier life of the same owner. Raises ``Conflict``, naming the holder, or ``ThreadNotFound``.
        """
        raise NotImplementedError

    async def renew(self, lease: Lease, *, ttl: float) -> ThreadRow:
        """Keep it for ``ttl`` seconds from now. Raises ``StaleRow`` if it is lost."""
        raise NotImplementedError

    async def release(self, lease: Lease, *, if_done: bool = True) -> bool:
        """Give the lease back; whether it is free (or lost) now.

        With ``if_done``, a thread that has a queued message, an open request or a turn that has not ended is not let
        go: False, and the holder goes on with that. Storing a message and this wait for each other, so none falls
        in between: either the holder sees it, or who stored it sees a free lease.
        """
        raise NotImplementedError

    async def release_all(self, owner: str) -> list[str]:
        """Give back every lease of this owner, at its orderly end: others take over at once. Returns the threads."""
        raise NotImplementedError

    async def abandoned(self, *, limit: int) -> list[ThreadRow]:
        """Threads with work to do and nobody doing it, longest untouched first. ``take`` each before acting."""
        raise NotImplementedError

    async def idle(self, rule: Idle, *, limit: int) -> list[ThreadRow]:
        """Threads for which the rule holds and whose lease is free, longest idle first. Claim each before acting."""
        raise NotImplementedError

    async def claim_idle(self, id: str, rule: Idle, *, owner: str, ttl: float) -> ThreadRow | None:
        """Take the lease if the rule still holds in that very moment; None if not: it was used or claimed meanwhile."""
        raise NotImplementedError
