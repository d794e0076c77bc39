"""Pausing and stopping: what stands still goes on as if nothing had happened, and what was stopped has its files."""

import asyncio
import contextlib

from holdfast.drivers.base import SandboxState
from holdfast.drivers.conformance.harness import (
    PATIENCE_SECONDS,
    DriverHarness,
    eventually,
    is_connected,
    need_ability,
    need_shell,
    raised,
    sandbox,
)
from holdfast.drivers.conformance.memory import COUNTER, assert_goes_on
from holdfast.errors import DriverConflict, SandboxLost, SandboxNotFound


class SleepConformance:
    """pause, resume, stop, start."""

    async def test_what_is_paused_stands_still_and_goes_on(self, harness: DriverHarness) -> None:
        need_shell(harness)
        async with sandbox(harness, needs="pause") as box:
            await box.run(f"A=kept; {COUNTER}")
            await box.driver.pause(box.handle)
            await box.driver.pause(box.handle)
            assert (await box.driver.inspect(box.handle)).state is SandboxState.PAUSED
            with contextlib.suppress(SandboxLost):
                await box.link.call("ping", {}, timeout=0.3)
                raise AssertionError("a paused sandbox has answered")
            await box.driver.resume(box.handle)
            await box.driver.resume(box.handle)
            assert (await box.driver.inspect(box.handle)).state is SandboxState.RUNNING
            assert (await box.run("echo $A")).stdout == "kept\n"
            await assert_goes_on(box, "/workspace/count")

    async def test_a_paused_sandbox_can_be_destroyed(self, harness: DriverHarness) -> None:
        async with sandbox(harness, needs="pause") as box:
            await box.driver.pause(box.handle)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await box.driver.destroy(box.handle)

    async def test_what_was_stopped_has_its_files_and_nothing_else(self, harness: DriverHarness) -> None:
        need_shell(harness)
        async with sandbox(harness, needs="stop") as box:
            await box.run("echo kept > /workspace/file; sleep 1000 >/dev/null 2>&1 &")
            for _ in range(2):
                await box.driver.stop(box.handle)
                assert (await box.driver.inspect(box.handle)).state is SandboxState.STOPPED
            running = [line for line in harness.leftovers(box.spec.session_id) if line.startswith("process")]
            assert not running, f"a stopped sandbox still runs: {running}"
            await box.driver.start(box.handle)
            await eventually(lambda: is_connected(box), "the runner dials again")
            assert (await box.run("cat /workspace/file; pgrep -c sleep")).stdout == "kept\n0\n"
            with raised(DriverConflict):
                await box.driver.start(box.handle)

    async def test_a_stopped_sandbox_can_be_destroyed(self, harness: DriverHarness) -> None:
        async with sandbox(harness, needs="stop") as box:
            await box.driver.stop(box.handle)
            await box.driver.destroy(box.handle)

    async def test_nothing_can_be_started_where_nothing_is(self, harness: DriverHarness) -> None:
        driver = await harness.make_driver()
        need_ability(driver, "stop")
        for step in (driver.stop, driver.start):
            with raised(SandboxNotFound):
                await step(driver.handle_for("ses_nothing"))
