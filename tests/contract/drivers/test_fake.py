"""The fake driver keeps the contract too: tests that stand on it stand on something real."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.drivers.base import Driver, ImageRoot
from holdfast.drivers.conformance import DriverConformance, DriverHarness
from holdfast.drivers.conformance.harness import SandboxUnderTest
from holdfast.drivers.fake.driver import FakeDriver, FakeWorld
from holdfast.link.hub import LinkHub
from support.machine.places import made

pytestmark = pytest.mark.anyio


class FakeHarness(DriverHarness):
    real_shell = False

    def __init__(self, root: Path) -> None:
        self.image = ImageRoot("empty", root)
        self.world = FakeWorld()
        self._links = root / "links"

    async def make_driver(self) -> Driver:
        return FakeDriver(self.world)

    async def make_stranger(self) -> Driver:
        return FakeDriver()

    def make_hub(self) -> LinkHub:
        return LinkHub(self._links)

    def leftovers(self, session_id: str) -> list[str]:
        return [f"{path}" for path in self._links.glob(session_id)]

    def keep_dir(self) -> Path:
        return made(self._links.parent / "keep")

    async def kill_runner(self, sandbox: SandboxUnderTest) -> None:
        assert isinstance(sandbox.driver, FakeDriver)
        await sandbox.driver.kill(sandbox.spec.session_id)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[DriverHarness]:
    harness = FakeHarness(tmp_path)
    yield harness
    assert not harness.world.sandboxes
    await harness.world.close()


class TestFakeDriver(DriverConformance):
    pass
