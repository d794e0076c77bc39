"""Steps of a session's row: leases, and changes that the machine allows."""

from collections.abc import Sequence

from holdfast.records.events import NewEvent
from holdfast.records.machine import LIVE, Event, Status, next_status, sources
from holdfast.records.sessions import SessionChange, SessionRow
from holdfast.sessions.live import Clock
from holdfast.sessions.settings import SessionSettings
from holdfast.sessions.telling.event_kinds import TOLD
from holdfast.store import SessionStore


class RowSteps:
    """What one daemon does to rows. Every change names the generation that came with the lease."""

    def __init__(self, store: SessionStore, settings: SessionSettings, *, node: str, clock: Clock) -> None:
        self._store = store
        self._settings = settings
        self._node = node
        self._clock = clock

    async def lease(self, session_id: str) -> SessionRow:
        return await self._store.acquire_lease(
            session_id, owner=self._node, now=self._clock(), ttl=self._settings.lease_seconds
        )

    async def release(self, row: SessionRow) -> None:
        await self._store.release_lease(row.id, owner=self._node, generation=row.generation)

    async def change(
        self, row: SessionRow, event: Event, values: SessionChange | None = None, notes: Sequence[NewEvent] = ()
    ) -> SessionRow:
        """One step of the machine; ``values`` are set, and ``notes`` taken, along with it."""
        changes: SessionChange = {**(values or {}), "status": next_status(Status(row.status), event)}
        return await self._store.change(
            row.id,
            statuses=sources(event),
            generation=row.generation,
            now=self._clock(),
            values=changes,
            tell=TOLD[event],
            notes=notes,
        )

    async def set(self, row: SessionRow, values: SessionChange) -> SessionRow:
        """Change something but the status."""
        return await self._store.change(
            row.id, statuses=LIVE, generation=row.generation, now=self._clock(), values=values
        )

    async def note(self, row: SessionRow, trouble: str | None) -> None:
        """Keep what went wrong, without any other change."""
        await self.set(row, {"error": trouble})
