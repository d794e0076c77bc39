"""The scripted agent in sandboxes of the process driver: with the host's own Python, and elsewhere on the disk.

Only the part of the suite that these make a difference to; ``test_scripted_oci.py`` has all of it.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.agents.conformance import Harness
from holdfast.agents.conformance.abilities import AbilityConformance
from holdfast.agents.conformance.recovery import RecoveryConformance
from holdfast.agents.conformance.streams import StreamConformance
from holdfast.drivers.process import ProcessDriver
from support.agents.scripted_harness import scripted_harness

pytestmark = pytest.mark.anyio


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    driver = ProcessDriver(tmp_path / "state")
    await driver.prepare()
    async with scripted_harness(tmp_path, driver, None, homes=tmp_path / "state" / "process") as harness:
        yield harness


class TestScriptedAgent(StreamConformance, RecoveryConformance, AbilityConformance):
    pass
