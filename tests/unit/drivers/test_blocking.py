"""Work in a thread ends before its caller goes on, however the caller ends."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.drivers.blocking import run_at_length, run_to_the_end
from holdfast.drivers.disk import disk
from holdfast.drivers.disk.disk import Disk

pytestmark = pytest.mark.anyio
Run = Callable[..., Coroutine[Any, Any, object]]


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


@pytest.mark.parametrize("run", [run_to_the_end, run_at_length])
async def test_the_result_and_the_error_come_through(run: Run) -> None:
    assert await run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await run(divmod, 7, 0)


async def test_the_files_of_many_sessions_hold_up_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred are removed, each for as long as its session has made it; others need threads meanwhile."""
    began, may_end = threading.Semaphore(0), threading.Event()

    def remove(_top: Path) -> None:
        began.release()
        assert may_end.wait(30)

    monkeypatch.setattr(disk, "remove_tree", remove)
    removals = [asyncio.create_task(Disk(tmp_path, limited=False).remove()) for _ in range(100)]
    try:
        async with asyncio.timeout(10):
            for _ in removals:
                await asyncio.to_thread(began.acquire)
            await run_to_the_end(divmod, 7, 2)
    finally:
        may_end.set()
        await asyncio.gather(*removals)


@pytest.mark.parametrize("run", [run_to_the_end, run_at_length])
async def test_a_cancelled_task_waits_for_the_end(run: Run) -> None:
    work = Work()
    task = asyncio.create_task(run(work))
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
