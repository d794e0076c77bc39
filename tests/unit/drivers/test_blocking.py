"""Work in a thread ends before its caller goes on, however the caller ends."""

import asyncio
import threading

import anyio
import pytest

from holdfast.drivers.blocking import run_to_the_end

pytestmark = pytest.mark.anyio


class Work:
    """Blocks until it is allowed to end."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.may_end = threading.Event()
        self.ended = False

    def __call__(self) -> str:
        self.began.set()
        assert self.may_end.wait(10)
        self.ended = True
        return "done"


async def test_the_result_and_the_error_come_through() -> None:
    assert await run_to_the_end(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await run_to_the_end(divmod, 7, 0)


async def test_a_cancelled_task_waits_for_the_end() -> None:
    work = Work()
    task = asyncio.create_task(run_to_the_end(work))
    await asyncio.to_thread(work.began.wait)
    for _ in range(3):
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=0.01)
        assert not done
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.ended


async def test_a_cancelled_scope_waits_for_the_end() -> None:
    work = Work()
    with anyio.CancelScope() as scope:
        scope.cancel()
        threading.Timer(0.05, work.may_end.set).start()
        await run_to_the_end(work)
    assert work.ended
