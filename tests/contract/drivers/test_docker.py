"""The docker driver, on real containers of a Docker daemon that the tests start themselves."""

import pytest

from holdfast.drivers.conformance import DriverConformance
from support.docker_harness import DockerHarness

pytestmark = pytest.mark.anyio


@pytest.fixture
def harness(docker_harness: DockerHarness) -> DockerHarness:
    return docker_harness


class TestDockerDriver(DriverConformance):
    pass
