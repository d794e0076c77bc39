"""No error of a task is left for asyncio to complain of, whoever has gone meanwhile."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from holdfast.api.wire.streaming import while_connected
from holdfast.concurrency import Bounded, Broadcast, KeyedLocks, cancel_and_wait, every, next_or_silence, seen
from holdfast.drivers.commands import finish_despite_cancel
from holdfast.errors import DriverTransient
from holdfast.sessions.operations import Operations

pytestmark = pytest.mark.anyio


@contextlib.contextmanager
def complaints() -> Iterator[list[str]]:
    """What the event loop is told of that nobody has seen to."""
    found: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: found.append(str(context["message"])))
    try:
        yield found
        gc.collect()
    finally:
        loop.set_exception_handler(None)


async def leave(waiting: "asyncio.Task[Any]") -> None:
    """It has begun to wait, and goes away."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])


class Trouble:
    """Fails when it is let go."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.over = asyncio.Event()

    async def run(self) -> None:
        try:
            while not self.gate.is_set():
                with contextlib.suppress(asyncio.CancelledError):  # what cannot be stopped half-way
                    await self.gate.wait()
            raise DriverTransient("the sandbox did not wake up")
        finally:
            self.over.set()


async def test_an_operation_whose_callers_have_all_gone_is_in_the_log_in_our_words() -> None:
    operations, trouble = Operations(), Trouble()
    with complaints() as found, capture_logs() as logs:
        callers = [asyncio.create_task(operations.share("wake:ses_1", trouble.run)) for _ in range(2)]
        for caller in callers:
            await leave(caller)
        trouble.gate.set()
        await operations.wait("wake:ses_1")
        del callers, caller, trouble
    assert found == []
    assert [(line["event"], line["operation"], line["code"]) for line in logs] == [
        ("operation.failed", "wake:ses_1", DriverTransient.code)
    ]


async def test_an_operation_that_somebody_waits_for_tells_him_and_nobody_else() -> None:
    operations, trouble = Operations(), Trouble()
    with complaints() as found, capture_logs() as logs:
        gone = asyncio.create_task(operations.share("wake:ses_1", trouble.run))
        await leave(gone)
        stays = asyncio.create_task(operations.share("wake:ses_1", trouble.run))
        await asyncio.sleep(0)
        trouble.gate.set()
        with pytest.raises(DriverTransient):
            await stays
        del gone, stays, trouble
    assert (found, logs) == ([], [])


async def test_what_must_not_stop_half_way_and_then_fails() -> None:
    trouble = Trouble()
    with complaints() as found:
        waiting = asyncio.create_task(finish_despite_cancel(trouble.run()))
        asyncio.get_running_loop().call_later(0.01, trouble.gate.set)
        await leave(waiting)
        del waiting, trouble
    assert found == []


async def test_a_reply_whose_request_is_cut_off() -> None:
    trouble = Trouble()

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    with complaints() as found:
        waiting = asyncio.create_task(while_connected(receive, trouble.run()))
        asyncio.get_running_loop().call_later(0.01, trouble.gate.set)
        await leave(waiting)
        del waiting, trouble
    assert found == []


async def test_a_stream_that_nobody_follows_any_more() -> None:
    trouble = Trouble()

    async def events() -> AsyncIterator[Any]:
        await trouble.run()
        yield None

    async def follow() -> None:
        async for _event in next_or_silence(events(), 60):  # type: ignore[arg-type]  # as a generator has it
            pass

    with complaints() as found:
        waiting = asyncio.create_task(follow())
        asyncio.get_running_loop().call_later(0.01, trouble.gate.set)
        await leave(waiting)
        del waiting
    assert found == []


async def test_an_error_is_seen_and_still_there_for_who_waits() -> None:
    async def fail() -> None:
        raise DriverTransient("no")

    ask: Callable[[], Awaitable[None]] = fail
    with complaints() as found:
        task = seen(asyncio.ensure_future(ask()))
        with pytest.raises(DriverTransient):
            await task
        del task
    assert found == []


async def test_a_second_cancellation_waits_until_the_first_is_through() -> None:
    gate, ended = asyncio.Event(), list[str]()

    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await gate.wait()
            ended.append("slow")

    slow, quick = asyncio.ensure_future(slow_to_end()), asyncio.ensure_future(asyncio.Event().wait())
    await asyncio.sleep(0)
    canceller = asyncio.create_task(cancel_and_wait(slow, quick))
    await leave_soon(canceller)
    assert not canceller.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await canceller
    assert (ended, quick.cancelled()) == (["slow"], True)


async def leave_soon(waiting: "asyncio.Task[Any]") -> None:
    """It has begun to wait, and is cancelled, and has noticed."""
    for step in range(6):
        if step == 3:
            waiting.cancel()
        await asyncio.sleep(0)


async def test_cancelling_what_has_failed_already_raises_nothing() -> None:
    trouble = Trouble()
    trouble.gate.set()
    with complaints() as found:
        task = asyncio.ensure_future(trouble.run())
        await asyncio.wait([task])
        await cancel_and_wait(task)
        del task, trouble
    assert found == []


async def test_silence_is_told_between_items_and_the_end_closes_the_source() -> None:
    gate, closed = asyncio.Event(), list[bool]()

    async def source() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await gate.wait()
            yield 2
        finally:
            closed.append(True)

    found: list[int | None] = []
    async for item in next_or_silence(source(), 0.001):
        if item is None:
            gate.set()
        if item not in found:
            found.append(item)
    assert (found, closed) == ([1, None, 2], [True])


async def test_a_follower_that_leaves_in_silence_closes_the_source() -> None:
    closed = list[bool]()

    async def source() -> AsyncGenerator[int, None]:
        try:
            await asyncio.Event().wait()
            yield 1
        finally:
            closed.append(True)

    async with contextlib.aclosing(next_or_silence(source(), 0.001)) as items:
        assert await anext(items) is None
    assert closed == [True]


@pytest.mark.parametrize("at_once", [True, False])
async def test_work_goes_on_after_failures_which_are_in_the_log(at_once: bool) -> None:
    errors = [DriverTransient("not now"), ValueError("ours")]
    done = asyncio.Event()

    async def work() -> None:
        if errors:
            raise errors.pop(0)
        done.set()

    with capture_logs() as logs:
        watch = asyncio.create_task(every(0.001, work, on_failure="watch.failed", at_once=at_once))
        await asyncio.wait_for(done.wait(), 10)
        await cancel_and_wait(watch)
    assert [(line["event"], line.get("code"), line["log_level"]) for line in logs] == [
        ("watch.failed", DriverTransient.code, "warning"),
        ("watch.failed", None, "error"),
    ]


async def test_a_lock_is_one_for_each_key_and_is_forgotten_when_unused() -> None:
    locks: KeyedLocks[str] = KeyedLocks()
    async with locks.of("a"):
        assert locks.of("a").locked()
        assert not locks.of("b").locked()
    gc.collect()
    assert not locks._locks


def test_a_bounded_dictionary_forgets_what_was_written_longest_ago() -> None:
    known: Bounded[str, int] = Bounded(2)
    known["a"], known["b"] = 1, 2
    assert known.setdefault("a", 5) == 1  # counts as written
    known["c"] = 3
    assert dict(known) == {"a": 1, "c": 3}
    known["a"] = 4
    assert (list(known), len(known), known.pop("c"), "b" in known) == (["c", "a"], 2, 3, False)


async def test_a_broadcast_wakes_who_waits_and_nobody_later() -> None:
    news = Broadcast()
    waiting = [asyncio.ensure_future(news.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    news.send()
    later = asyncio.ensure_future(news.wait())
    await asyncio.wait_for(asyncio.gather(*waiting), 10)
    await asyncio.sleep(0)
    assert not later.done()
    await cancel_and_wait(later)
