"""The docker driver, on real containers of a Docker daemon that the tests start themselves."""

import pytest

from holdfast.drivers.conformance import DriverConformance
from support.machine.call_conformance import SystemCallConformance
from support.machine.docker_harness import DockerHarness

pytestmark = pytest.mark.anyio


@pytest.fixture
def harness(docker_harness: DockerHarness) -> DockerHarness:
    return docker_harness


class TestDockerDriver(DriverConformance):
    new_names_in_root = False  # they would be on Docker's own disk, where no limit holds


class TestSystemCalls(SystemCallConformance):
    unlisted = frozenset({"ENOSYS", "EPERM"})  # before version 23 Docker knows no other
