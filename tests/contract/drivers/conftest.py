"""The conformance suite is outside the tests; pytest is told to explain its asserts too.

And what the tests of the docker driver share; a Docker daemon is in the fixture ``docker``.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.images.store import ImageStore
from support.machine.state_dir import open_state_dir
from support.servers.dockerd import DockerSocket

pytest.register_assert_rewrite("holdfast.drivers.conformance")

from support.machine.docker_harness import DockerHarness  # noqa: E402 - it imports the suite


@pytest.fixture(scope="session")
def docker_shared() -> Iterator[Path]:
    """Where the runtime bundle and the image are that all tests use."""
    with open_state_dir() as root:
        (root / "bundles").mkdir()
        yield root


@pytest.fixture
async def docker_harness(docker: DockerSocket, docker_shared: Path) -> AsyncIterator[DockerHarness]:
    with open_state_dir() as root:
        harness = DockerHarness(root, docker, docker_shared / "bundles")
        try:
            driver = await harness.make_driver()
            harness.image = await ImageStore(docker_shared / "images", id_base=driver.root_id).resolve("host")
            yield harness
        finally:
            await harness.close()
