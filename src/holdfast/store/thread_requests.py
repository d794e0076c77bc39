"""What a client asks of a running turn, on its way to the daemon that holds the lease: abort, an answer, revert.

Any daemon stores a request; the holder, woken by ``ThreadWatch``, does it and writes the result; the asker, woken
too, reads that.
"""

from collections.abc import Mapping

from holdfast.store.database import Database
from holdfast.store.thread_rows import Lease, RequestRow, ThreadRow
from holdfast.store.thread_watch import ThreadWatch


class ThreadRequests:
    """Requests to the holder of a lease. Raises what ``ThreadStore`` raises."""

    def __init__(self, database: Database, watch: ThreadWatch) -> None:
        self._database = database
        self._watch = watch

    async def put(
        self, thread_id: str, *, id: str, kind: str, data: Mapping[str, object]
    ) -> tuple[RequestRow, ThreadRow]:
        """Store a request, once per id; and the thread, whose holder (if any) sees it before it can let go."""
        raise NotImplementedError

    async def open(self, thread_id: str) -> list[RequestRow]:
        """Those not done yet, oldest first."""
        raise NotImplementedError

    async def get(self, id: str) -> RequestRow:
        """One request; raises ``NotFound``."""
        raise NotImplementedError

    async def done(self, lease: Lease, id: str, result: Mapping[str, object]) -> RequestRow:
        """It is done, or cannot be: ``result`` says which. The first result stays. Wakes listeners."""
        raise NotImplementedError
