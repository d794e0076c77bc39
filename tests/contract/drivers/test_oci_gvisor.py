"""The oci driver with gVisor: the suite once more."""

from collections.abc import AsyncIterator

import pytest

from holdfast.drivers.conformance import DriverConformance
from support.oci_harness import OciHarness, open_harness

pytestmark = pytest.mark.anyio


@pytest.fixture
async def harness() -> AsyncIterator[OciHarness]:
    async with open_harness("runsc") as harness:
        yield harness


class TestGvisor(DriverConformance):
    pass
