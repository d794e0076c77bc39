"""The log of events in memory: what a test adds is told at once."""

import asyncio
from collections.abc import AsyncGenerator

from holdfast.errors import BadInput
from holdfast.records.events import EventPage, EventRow
from holdfast.sessions.telling.events import Filter, Gap


class FakeEvents:
    """``endless=False`` lets every stream end with what there is. Set ``fail`` to have the next reads raise."""

    def __init__(self, *, endless: bool = True) -> None:
        self._endless = endless
        self.rows: list[EventRow] = []
        self.oldest = 1
        self.fail: Exception | None = None
        self.hang_up = False
        self.readers = 0

    def add(self, kind: str, session_id: str = "ses_1", **data: object) -> None:
        seq = len(self.rows) + 1
        self.rows.append(EventRow(seq=seq, kind=kind, session_id=session_id, at=1_700_000_000.25 + seq, data=data))

    async def page(self, after: int | None, limit: int, wanted: Filter) -> EventPage:
        if self.fail is not None:
            raise self.fail
        newest = len(self.rows)
        if after is not None and after > newest:
            raise BadInput(f"after: {after} is beyond the newest event, which is {newest}")
        kept = self.rows[max(after or 0, self.oldest - 1) :]
        found = [row for row in kept if wanted.session_id in (None, row.session_id)]
        found = [row for row in found if wanted.kinds is None or row.kind in wanted.kinds][:limit]
        return EventPage(found, found[-1].seq if len(found) == limit else newest, self.oldest, newest)

    async def follow(self, after: int | None, wanted: Filter) -> AsyncGenerator[EventRow | Gap, None]:
        self.readers += 1
        try:
            while not self.hang_up:
                page = await self.page(after, 100, wanted)
                if after is not None and page.lost(after):
                    yield Gap(after, page.oldest)
                for row in page.events:
                    yield row
                after = page.next
                if not self._endless:
                    return
                await asyncio.sleep(0.005)  # any of these may be set, at any time and from any thread
        finally:
            self.readers -= 1
