"""OpenCode's own server in a real container without network, and the demo model behind it."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from unittest import SkipTest

import pytest

from holdfast.agents.conformance import AgentConformance, Harness
from holdfast.agents.supervisor import AGENT_BIN, Supervisor
from holdfast.drivers.base import Driver
from holdfast.drivers.oci import OciDriver
from holdfast.drivers.oci_config import ID_BASE
from holdfast.errors import RuntimeUnavailable
from holdfast.images.store import ImageStore
from support.daemon import unmount_below
from support.opencode_harness import FRESH, OpenCodeHarness, World, opencode_world

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        not Path(AGENT_BIN, "opencode").exists() and os.environ.get("CI") != "true", reason="OpenCode is not installed"
    ),
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="hf-", dir="/var/tmp"))
    root.chmod(0o711)  # sandboxes run under other ids and must be able to pass through
    try:
        yield root
    finally:
        unmount_below(root)
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
async def driver(root: Path, anyio_backend: str) -> AsyncIterator[Driver]:
    state_dir = root / "s"
    state_dir.mkdir(0o711, exist_ok=True)
    driver = OciDriver(state_dir, runtime="runc")
    try:
        await driver.prepare()
    except RuntimeUnavailable as reason:
        raise SkipTest(f"runc: {reason}") from None
    try:
        yield driver
    finally:
        await driver.close()


@pytest.fixture(scope="module")
async def world(root: Path, driver: Driver) -> AsyncIterator[World]:
    images = ImageStore(root / "images", id_base=ID_BASE if os.geteuid() == 0 else None)
    async with opencode_world(root, driver, images) as world:
        yield world


@pytest.fixture
async def harness(world: World, request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    harness = OpenCodeHarness(world)
    if request.node.name in FRESH:
        await Supervisor("opencode").stop(await world.place())
    try:
        yield harness
    finally:
        await harness.close()


class TestOpenCode(AgentConformance):
    pass
