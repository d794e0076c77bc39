"""The process driver, on real processes."""

import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.drivers.base import Driver, ImageRoot
from holdfast.drivers.conformance import DriverConformance, Harness
from holdfast.drivers.conformance.harness import Sandbox
from holdfast.drivers.process import ProcessDriver
from holdfast.link.hub import LinkHub
from support.leftovers import leftovers

pytestmark = pytest.mark.anyio


class ProcessHarness(Harness):
    def __init__(self, root: Path) -> None:
        self.image = ImageRoot("ignored", root)
        self.root = root
        self.state_dir = root / "state"

    async def make_driver(self) -> Driver:
        return await self._prepared(self.state_dir)

    async def make_stranger(self) -> Driver:
        return await self._prepared(self.root / "strange")

    async def _prepared(self, state_dir: Path) -> Driver:
        driver = ProcessDriver(state_dir)
        await driver.prepare()
        return driver

    def make_hub(self) -> LinkHub:
        return LinkHub(self.root / "links")

    def leftovers(self, session_id: str) -> list[str]:
        return leftovers(session_id, self.root)

    def runner_pid(self, session_id: str) -> int:
        return int(json.loads((self.home(session_id) / "runner.json").read_text())["pid"])

    def home(self, session_id: str) -> Path:
        return self.state_dir / "process" / session_id

    async def kill_runner(self, sandbox: Sandbox) -> None:
        os.kill(self.runner_pid(sandbox.spec.session_id), signal.SIGKILL)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ProcessHarness]:
    yield ProcessHarness(tmp_path)


class TestProcessDriver(DriverConformance):
    pass
