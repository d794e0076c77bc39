"""The scripted agent in sandboxes of the process driver: with the host's own Python."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.agents.conformance import AgentConformance, Harness
from holdfast.drivers.process import ProcessDriver
from support.scripted_harness import scripted_harness

pytestmark = pytest.mark.anyio


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    driver = ProcessDriver(tmp_path / "state")
    await driver.prepare()
    async with scripted_harness(tmp_path, driver, None, homes=tmp_path / "state" / "process") as harness:
        yield harness


class TestScriptedAgent(AgentConformance):
    pass
