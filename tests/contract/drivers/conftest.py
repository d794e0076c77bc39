"""The conformance suite is outside the tests; pytest is told to explain its asserts too.

And what the tests of the docker driver share; a Docker daemon is in the fixture ``docker``.
"""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.images.store import ImageStore
from support.daemon import unmount_below
from support.dockerd import DockerSocket

pytest.register_assert_rewrite("holdfast.drivers.conformance")

from support.docker_harness import DockerHarness  # noqa: E402 - it imports the suite


@pytest.fixture(scope="session")
def docker_shared() -> Iterator[Path]:
    """Where the runtime bundle and the image are that all tests use."""
    root = Path(tempfile.mkdtemp(prefix="hf-", dir="/var/tmp"))
    root.chmod(0o711)  # sandboxes run under other ids and must be able to pass through
    (root / "bundles").mkdir()
    try:
        yield root
    finally:
        shutil.rmtree(root)


@pytest.fixture
async def docker_harness(docker: DockerSocket, docker_shared: Path) -> AsyncIterator[DockerHarness]:
    root = Path(tempfile.mkdtemp(prefix="hf-", dir="/var/tmp"))
    root.chmod(0o711)
    harness = DockerHarness(root, docker, docker_shared / "bundles")
    try:
        driver = await harness.make_driver()
        harness.image = await ImageStore(docker_shared / "images", id_base=driver.root_id).resolve("host")
        yield harness
    finally:
        await harness.close()
        unmount_below(root)
        shutil.rmtree(root, ignore_errors=True)
