"""The OCI driver, with each runtime, on real containers. Needs what ``holdfast doctor`` asks for."""

from collections.abc import AsyncIterator

import pytest

from holdfast.drivers.conformance import DriverConformance
from support.oci_harness import OciHarness, open_harness

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["runc", "crun"])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[OciHarness]:
    async with open_harness(request.param) as harness:
        yield harness


class TestOciDriver(DriverConformance):
    pass
