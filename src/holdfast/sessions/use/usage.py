"""What sessions use, from the driver, beside the limits that are really enforced."""

import asyncio
from collections.abc import Mapping, Sequence

from holdfast.drivers.base import Driver, SandboxStats
from holdfast.errors import HoldfastError, Unavailable
from holdfast.records.machine import Status
from holdfast.records.sessions import SessionRow
from holdfast.sessions.live import Clock
from holdfast.sessions.types import SessionStats

_SECONDS = 10.0
"""The driver reads these facts from memory; if that takes longer, a disk hangs."""

_AT_ONCE = 4
"""A list of a thousand sessions must not take all threads from creates and file calls."""


class Usage:
    """The statistics of sandboxes. To read them is not a use of the session: it keeps no session alive."""

    def __init__(self, driver: Driver, clock: Clock, *, node: str) -> None:
        self._driver = driver
        self._clock = clock
        self._node = node
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def read(self, row: SessionRow) -> SessionStats:
        """Read what one session uses now.

        Raises ``SandboxNotFound`` if there is no sandbox, ``Unavailable`` if it takes too long.
        """
        try:
            async with self._turns, asyncio.timeout(_SECONDS):
                facts = await self._driver.stats(self._driver.handle_for(row.id))
        except TimeoutError:
            raise Unavailable(f"what {row.id} uses could not be read within {_SECONDS:.0f} s; try again") from None
        return self._with_limits(row, facts)

    async def read_many(self, rows: Sequence[SessionRow]) -> Mapping[str, SessionStats]:
        """Read what the active sessions on this host use, by id. One that cannot be read is left out."""
        here = [row for row in rows if row.status is Status.ACTIVE and row.node == self._node]
        found = await asyncio.gather(*(self._try_to_read(row) for row in here))
        return {row.id: stats for row, stats in zip(here, found, strict=True) if stats is not None}

    async def _try_to_read(self, row: SessionRow) -> SessionStats | None:
        try:
            return await self.read(row)
        except HoldfastError:
            return None

    def _with_limits(self, row: SessionRow, facts: SandboxStats) -> SessionStats:
        limits, enforced = row.spec.limits, self._driver.capabilities
        return SessionStats(
            cpu_seconds=facts.cpu_seconds,
            cpu_limit=limits.cpus if enforced.cpu_limit else None,
            memory_bytes=facts.memory_bytes,
            memory_peak_bytes=facts.memory_peak_bytes,
            memory_limit_bytes=limits.memory_mb << 20 if enforced.memory_limit else None,
            disk_bytes=facts.disk_bytes,
            disk_limit_bytes=facts.disk_limit_bytes,
            processes=facts.processes,
            processes_limit=limits.pids if enforced.pids_limit else None,
            oom_kills=facts.oom_kills,
            uptime_seconds=max(0.0, self._clock() - row.created_at),
        )
