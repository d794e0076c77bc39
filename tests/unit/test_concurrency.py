"""No error of a task is left for asyncio to complain of, whoever has gone meanwhile."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from holdfast.api.wire.sse import _with_pauses
from holdfast.api.wire.streaming import while_connected
from holdfast.concurrency import seen
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
        async for _event in _with_pauses(events()):  # type: ignore[arg-type]  # as a generator has it
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
