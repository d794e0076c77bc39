"""A lease on one thread, kept alive for as long as this daemon works on it.

Every write names the lease, so a daemon that has lost it changes nothing any more. It should also stop working: that
is what ``keep`` is for, which returns in the moment in which somebody else may have the thread.
"""

import asyncio

import structlog

from holdfast.errors import HoldfastError, StaleRow, ThreadNotFound
from holdfast.records.threads import Lease
from holdfast.store.threads.leases import ThreadLeases

log = structlog.get_logger(__name__)


class LeaseKeeper:
    """Renews one lease. Time is this process's own, from before it asked: never later than the store's."""

    def __init__(self, leases: ThreadLeases, lease: Lease, *, ttl: float, taken_at: float) -> None:
        self._leases = leases
        self._lease = lease
        self._ttl = ttl
        self._ends_at = taken_at + ttl

    async def keep(self) -> str:
        """Renew for ever; returns, with the reason, when the lease is lost, or may be."""
        while True:
            await asyncio.sleep(self._ttl / 3)
            began = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout_at(self._ends_at):
                    await self._leases.renew(self._lease, ttl=self._ttl)
                self._ends_at = began + self._ttl
            except (StaleRow, ThreadNotFound) as error:
                return error.message
            except TimeoutError:
                return "it could not be renewed in time"
            except HoldfastError as error:
                log.warning("thread.lease.renew_failed", thread_id=self._lease.thread_id, error=error.message)
                if asyncio.get_running_loop().time() >= self._ends_at:
                    return f"it could not be renewed in time: {error.message}"
