"""The scripted agent in real containers: with the runtime bundle's Python, whatever the image has."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from unittest import SkipTest

import pytest

from holdfast.agents.conformance import AgentConformance, Harness
from holdfast.drivers.oci import OciDriver
from holdfast.drivers.oci_config import ID_BASE
from holdfast.errors import RuntimeUnavailable
from holdfast.images.store import ImageStore
from support.daemon import unmount_below
from support.scripted_harness import scripted_harness

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """One for all tests: making the runtime bundle takes longer than a test."""
    root = Path(tempfile.mkdtemp(prefix="hf-", dir="/var/tmp"))
    root.chmod(0o711)  # sandboxes run under other ids and must be able to pass through
    try:
        yield root
    finally:
        unmount_below(root)
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
async def harness(root: Path) -> AsyncIterator[Harness]:
    state_dir = root / "s"
    state_dir.mkdir(0o711, exist_ok=True)
    driver = OciDriver(state_dir, runtime="runc")
    images = ImageStore(root / "images", id_base=ID_BASE if os.geteuid() == 0 else None)
    try:
        await driver.prepare()
    except RuntimeUnavailable as reason:
        raise SkipTest(f"runc: {reason}") from None  # one line for all tests, unlike pytest.skip
    try:
        async with scripted_harness(root, driver, images, image="host") as harness:
            yield harness
    finally:
        await driver.close()


class TestScriptedAgent(AgentConformance):
    pass
