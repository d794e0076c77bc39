"""Room on the host's disk, which all sandboxes share: below the mark nothing is begun that would need more of it.

A sandbox's disk is a file with holes. Where the host has no block left for one of them, the kernel tells the sandbox's
file system of a write that failed, after the program was told that it was done; that refuses all writes from then on.
So what is new is refused while there still is some room; what frees it, and what only reads, always goes.
"""

import asyncio
import os
from pathlib import Path

import structlog

from holdfast.errors import DiskFull
from holdfast.sessions.telling.metrics import SessionMetrics

log = structlog.get_logger(__name__)


class Room:
    """On the disk of ``place``, with ``low`` bytes as the mark; 0 is none."""

    def __init__(self, place: Path, low: int, metrics: SessionMetrics) -> None:
        self._place = place
        self.low = low
        self.is_low = False
        """As it was when somebody last looked."""
        metrics.disk_low.set_function(lambda: float(self.is_low))

    async def check(self, what: str) -> None:
        """Raises ``DiskFull`` where ``what`` must not be begun now."""
        if await self.look():
            raise DiskFull(
                f"the host's disk has less than {self.low >> 20} MB left (disk_low_mb), so {what} must wait; "
                "make room: destroy sessions, remove snapshots or images"
            )

    async def look(self) -> bool:
        """Say whether there is too little."""
        return bool(self.low) and await self.measure() < self.low

    async def measure(self) -> int:
        """Return how many bytes are free."""
        free = await asyncio.to_thread(self._free)
        low = bool(self.low) and free < self.low
        if low != self.is_low:
            self.is_low = low
            if low:
                log.warning("disk.low", place=str(self._place), mark_mb=self.low >> 20, next="nothing new is begun")
            else:
                log.info("disk.room", place=str(self._place))
        return free

    def _free(self) -> int:
        try:
            found = os.statvfs(self._place)
        except OSError:
            return self.low  # what cannot be looked at is no reason to refuse anything
        return found.f_bavail * found.f_frsize
