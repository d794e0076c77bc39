"""How tests wait: for a condition, with a deadline. Nothing else in the tests sleeps while it waits for something."""

import asyncio
import time
from collections.abc import Awaitable, Callable

PATIENCE = 60.0
"""Seconds after which a thing will never be so, also on a busy machine."""


def wait_for(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Until it is so; an ``AssertionError`` that names it when it never is."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"after {seconds:.0f} s still not so: {what}"
        time.sleep(0.02)


async def until(
    condition: Callable[[], Awaitable[bool] | bool], what: str, seconds: float = PATIENCE, every: float = 0.005
) -> None:
    """The same for a test that is in the event loop itself. ``every``: longer where looking costs others their time."""
    try:
        async with asyncio.timeout(seconds) as patience:
            while True:
                found = condition()
                if found if isinstance(found, bool) else await found:
                    return
                await asyncio.sleep(every)
    except TimeoutError:
        assert not patience.expired(), f"after {seconds:.0f} s still not so: {what}"
        raise


async def linger(seconds: float = 0.05) -> None:
    """Time for others to come to where they wait, or to do what they must not do.

    There is no condition to wait for: a test must pass however far they come, and may only prove more the further.
    """
    await asyncio.sleep(seconds)
