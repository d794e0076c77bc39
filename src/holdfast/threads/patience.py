"""Writing to a store that may be away for a while: what must be written waits for it."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from holdfast.errors import DiskFull, Unavailable
from holdfast.threads.tools import Sleep

log = structlog.get_logger(__name__)

T = TypeVar("T")
AGAIN_SECONDS = 0.5


async def patiently(write: Callable[[], Awaitable[T]], sleep: Sleep) -> T:
    """Until it is written. ``write`` must be safe to repeat.

    There is no deadline of its own: who holds a lease is cancelled as soon as that cannot be renewed any more.
    """
    while True:
        try:
            return await write()
        except (Unavailable, DiskFull) as error:
            log.warning("thread.write.waits", code=error.code, error=error.message)
        await sleep(AGAIN_SECONDS)
