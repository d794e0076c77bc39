"""A long call is watched: it goes on while the runner answers pings, and ends soon after it does not."""

import asyncio

import pytest

from holdfast.errors import ExecNotFound, HoldfastError, SandboxLost
from holdfast.link.pulse import call_with_pulse
from holdfast.protocol import frames

pytestmark = pytest.mark.anyio

EVERY = 0.01


class SlowLink:
    """Stands in for a link: pings are answered or not, the call ends when the test says so."""

    def __init__(self) -> None:
        self.pings = 0
        self.asked = asyncio.Event()
        self.ping_failure: HoldfastError | None = None
        self.ping_hangs = False
        self.ping_was_cancelled = False
        self.reply: asyncio.Future[frames.Frame] = asyncio.get_running_loop().create_future()

    async def call(self, op: str, fields: frames.Header, body: bytes = b"", *, timeout: float) -> frames.Frame:
        if op != "ping":
            return await self.reply
        assert timeout == EVERY
        self.pings += 1
        if self.pings >= 3:
            self.asked.set()
        if self.ping_failure is not None:
            raise self.ping_failure
        if self.ping_hangs:
            await self._hang()
        return {}, b""

    async def _hang(self) -> None:
        self.asked.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.ping_was_cancelled = True


def start(link: SlowLink) -> asyncio.Task[frames.Frame]:
    call = call_with_pulse(link, "exec", {}, b"", timeout=60, every=EVERY)  # type: ignore[arg-type]  # a stand-in
    return asyncio.create_task(call)


async def test_a_call_goes_on_while_pings_are_answered() -> None:
    link = SlowLink()
    call = start(link)
    async with asyncio.timeout(30):
        await link.asked.wait()
    link.reply.set_result(({"exit_code": 0}, b"out"))
    assert await call == ({"exit_code": 0}, b"out")
    await no_ping_is_left()


async def test_a_dead_runner_ends_the_call() -> None:
    link = SlowLink()
    link.ping_failure = SandboxLost("no answer")
    async with asyncio.timeout(30):
        with pytest.raises(SandboxLost, match="no answer"):
            await start(link)
    assert link.pings == 1
    assert link.reply.cancelled(), "nobody waits for the answer any more"
    await no_ping_is_left()


async def test_the_calls_own_failure_comes_through() -> None:
    link = SlowLink()
    link.reply.set_exception(ExecNotFound("long ago"))
    with pytest.raises(ExecNotFound):
        await start(link)
    await no_ping_is_left()


async def test_a_caller_that_leaves_takes_the_pulse_along() -> None:
    link = SlowLink()
    link.ping_hangs = True
    call = start(link)
    async with asyncio.timeout(30):
        await link.asked.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await no_ping_is_left()
    assert link.ping_was_cancelled


async def no_ping_is_left() -> None:
    pings = [task for task in asyncio.all_tasks() if "_ping" in repr(task)]
    async with asyncio.timeout(30):
        await asyncio.gather(*pings, return_exceptions=True)
