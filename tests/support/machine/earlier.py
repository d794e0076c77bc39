"""Sandboxes as earlier versions made them: known to the machine by the session's id alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from holdfast.drivers.base import SandboxState
from holdfast.drivers.conformance import DriverHarness
from holdfast.drivers.conformance.harness import PATIENCE_SECONDS, SandboxUnderTest, sandbox
from holdfast.drivers.docker.driver import DockerDriver
from holdfast.drivers.names import MachineNames


@asynccontextmanager
async def made_as_before(harness: DriverHarness) -> AsyncIterator[SandboxUnderTest]:
    """A sandbox with the old names, in the hands of a driver that was started after it was made."""
    with pytest.MonkeyPatch.context() as earlier:
        for owner, method in ((MachineNames, "of"), (MachineNames, "note"), (DockerDriver, "_name")):
            earlier.setattr(owner, method, lambda _self, session_id: session_id)
        async with sandbox(harness) as box:
            earlier.undo()
            box.driver = await harness.make_driver()
            yield box
            await box.driver.destroy(box.handle)
            await box.driver.close()


async def check_adoption(harness: DriverHarness) -> None:
    """A sandbox of an earlier version is found, put to sleep, woken and destroyed; a twin of its id does no harm."""
    async with made_as_before(harness) as box:
        driver, handle = box.driver, box.handle
        assert (await driver.inspect(handle)).state is SandboxState.RUNNING
        assert [info.session_id for info in await driver.list()] == [box.spec.session_id]
        assert (await driver.stats(handle)).memory_bytes
        stranger = await harness.make_stranger()
        twin = await stranger.create(replace(box.spec, link_dir=harness.keep_dir()))
        if driver.capabilities.pause:
            await driver.pause(handle)
            assert (await driver.inspect(handle)).state is SandboxState.PAUSED
            await driver.resume(handle)
        if driver.capabilities.stop:
            await box.run("echo kept > ~/kept")
            await driver.stop(handle)
            await driver.start(handle)
            await box.link.wait_connected(PATIENCE_SECONDS)
            assert (await box.run("cat ~/kept")).stdout == "kept\n"
        await driver.destroy(handle)
        assert (await stranger.inspect(twin)).state is SandboxState.RUNNING
        assert [info.session_id for info in await driver.list()] == []
        await stranger.destroy(twin)
        await stranger.close()
