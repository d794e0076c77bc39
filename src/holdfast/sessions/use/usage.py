"""What sessions use of what they may: the driver's facts beside the limits that are really enforced."""

import asyncio
from collections.abc import Sequence

from holdfast.drivers.base import Driver, SandboxStats
from holdfast.errors import HoldfastError, Unavailable
from holdfast.records.sessions import SessionRow
from holdfast.sessions.live import Clock
from holdfast.sessions.types import SessionStats

_SECONDS = 10.0
"""Facts come from memory; whoever takes longer has a disk that hangs."""

_AT_ONCE = 4
"""A list of a thousand sessions must not take all threads from creates and file calls."""


class Usage:
    """Looks at sandboxes. That is not using them: it keeps no session alive."""

    def __init__(self, driver: Driver, clock: Clock) -> None:
        self._driver = driver
        self._clock = clock
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def of(self, row: SessionRow) -> SessionStats:
        """Raises ``SandboxNotFound`` if there is no sandbox, ``Unavailable`` if it takes too long."""
        try:
            async with self._turns, asyncio.timeout(_SECONDS):
                facts = await self._driver.stats(self._driver.handle_for(row.id))
        except TimeoutError:
            raise Unavailable(f"what {row.id} uses could not be read within {_SECONDS:.0f} s; try again") from None
        return self._with_limits(row, facts)

    async def of_many(self, rows: Sequence[SessionRow]) -> list[SessionStats | None]:
        """In the order of ``rows``; None for one that cannot be looked at, which costs the others nothing."""
        return list(await asyncio.gather(*(self._or_none(row) for row in rows)))

    async def _or_none(self, row: SessionRow) -> SessionStats | None:
        try:
            return await self.of(row)
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
