"""Pausing and stopping: what stands still goes on as if nothing had happened, and what was stopped has its files."""

import asyncio
import contextlib

from holdfast.drivers.base import Driver, SandboxState
from holdfast.drivers.conformance.harness import (
    PATIENCE_SECONDS,
    Harness,
    eventually,
    need,
    need_shell,
    sandbox,
)
from holdfast.errors import DriverConflict, SandboxLost, SandboxNotFound

_COUNTER = "i=0; while :; do i=$((i+1)); echo $i > /workspace/count; sleep 0.02; done >/dev/null 2>&1 &"


class SleepConformance:
    """pause, resume, stop, start."""

    async def test_what_is_paused_stands_still_and_goes_on(self, harness: Harness) -> None:
        need_shell(harness)
        async with sandbox(harness) as box:
            _need(box.driver, "pause")
            await box.run(f"A=kept; {_COUNTER}")
            await box.driver.pause(box.handle)
            await box.driver.pause(box.handle)
            assert (await box.driver.inspect(box.handle)).state is SandboxState.PAUSED
            with contextlib.suppress(SandboxLost):
                await box.link.call("ping", {}, timeout=0.3)
                raise AssertionError("a paused sandbox has answered")
            await box.driver.resume(box.handle)
            await box.driver.resume(box.handle)
            assert (await box.driver.inspect(box.handle)).state is SandboxState.RUNNING
            before = (await box.run("cat /workspace/count; echo $A")).stdout.split()
            assert before[1] == "kept"

            async def goes_on() -> bool:
                return int((await box.run("cat /workspace/count")).stdout or 0) > int(before[0])

            await eventually(goes_on, "the counter goes on")

    async def test_a_paused_sandbox_can_be_destroyed(self, harness: Harness) -> None:
        async with sandbox(harness) as box:
            _need(box.driver, "pause")
            await box.driver.pause(box.handle)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await box.driver.destroy(box.handle)

    async def test_what_was_stopped_has_its_files_and_nothing_else(self, harness: Harness) -> None:
        need_shell(harness)
        async with sandbox(harness) as box:
            _need(box.driver, "stop")
            await box.run("echo kept > /workspace/file; sleep 1000 >/dev/null 2>&1 &")
            for _ in range(2):
                await box.driver.stop(box.handle)
                assert (await box.driver.inspect(box.handle)).state is SandboxState.STOPPED
            running = [line for line in harness.leftovers(box.spec.session_id) if line.startswith("process")]
            assert not running, f"a stopped sandbox still runs: {running}"
            await box.driver.start(box.handle)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not box.link.connected:  # noqa: ASYNC110 - another process dials
                    await asyncio.sleep(0.01)
            assert (await box.run("cat /workspace/file; pgrep -c sleep")).stdout == "kept\n0\n"
            try:
                await box.driver.start(box.handle)
            except DriverConflict:
                return
            raise AssertionError("a running sandbox was started once more")

    async def test_a_stopped_sandbox_can_be_destroyed(self, harness: Harness) -> None:
        async with sandbox(harness) as box:
            _need(box.driver, "stop")
            await box.driver.stop(box.handle)
            await box.driver.destroy(box.handle)

    async def test_nothing_can_be_started_where_nothing_is(self, harness: Harness) -> None:
        driver = await harness.make_driver()
        _need(driver, "stop")
        for step in (driver.stop, driver.start):
            try:
                await step(driver.handle_for("ses_nothing"))
            except SandboxNotFound:
                continue
            raise AssertionError(f"{step.__name__} found something where nothing is")


def _need(driver: Driver, ability: str) -> None:
    need(getattr(driver.capabilities, ability), f"the {driver.name} driver cannot {ability} here")
