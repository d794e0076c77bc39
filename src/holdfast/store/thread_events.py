"""The events of threads: numbered from 1 in each thread, without holes, in the order of the commits.

The number comes from the thread's own row, which stays locked until the transaction ends: who has read up to a number
has read everything before it, and threads do not wait for each other.
"""

from collections.abc import Collection, Sequence

from holdfast.protocol.turn_events import TurnEvent
from holdfast.store.database import Database
from holdfast.store.thread_rows import DEFAULT_CHANNEL, Lease, ThreadEventPage, ThreadEventRow
from holdfast.store.thread_watch import ThreadWatch


class ThreadEvents:
    """The log of each thread. Raises what ``ThreadStore`` raises."""

    def __init__(self, database: Database, watch: ThreadWatch) -> None:
        self._database = database
        self._watch = watch

    async def record(self, lease: Lease, events: Sequence[TurnEvent], *, channel: str = DEFAULT_CHANNEL) -> int:
        """Add events that belong to no turn; returns the number of the newest."""
        raise NotImplementedError

    async def page(self, thread_id: str, *, after: int, limit: int, channel: str | None = None) -> ThreadEventPage:
        """At most ``limit`` events with greater numbers than ``after``, in order. Raises ``ThreadNotFound``."""
        raise NotImplementedError

    async def newest(self, thread_id: str) -> int:
        """The number of the newest event; 0 before the first. Raises ``ThreadNotFound``."""
        raise NotImplementedError

    async def of_turn(self, turn_id: str, *, kinds: Collection[str] | None = None) -> list[ThreadEventRow]:
        """The events of one turn, in order: which questions are open, say."""
        raise NotImplementedError
