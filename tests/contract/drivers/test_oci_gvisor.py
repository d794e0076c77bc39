"""The oci driver with gVisor, on real sandboxes. A selection of the suite; all of it with ``TEST_WHOLE_SUITE=1``."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from unittest import SkipTest

import pytest

from contract.drivers.test_oci import OciHarness, unmount_below
from holdfast.drivers.base import SandboxState
from holdfast.drivers.conformance import DriverConformance, Harness
from holdfast.drivers.conformance.harness import eventually
from holdfast.drivers.conformance.limits import MEMORY_MB, limited
from holdfast.drivers.oci_config import ID_BASE
from holdfast.errors import RuntimeUnavailable
from holdfast.images.store import ImageStore

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """Where the runtime bundle and the image are that all tests use."""
    root = Path(tempfile.mkdtemp(prefix="hf-", dir="/var/tmp"))
    root.chmod(0o711)  # sandboxes run under other ids and must be able to pass through
    (root / "bundles").mkdir()
    try:
        yield root
    finally:
        shutil.rmtree(root)


@pytest.fixture
async def harness(shared: Path) -> AsyncIterator[OciHarness]:
    root = Path(tempfile.mkdtemp(prefix="hf-", dir="/var/tmp"))
    root.chmod(0o711)
    try:
        store = ImageStore(shared / "images", id_base=ID_BASE if os.geteuid() == 0 else None)
        harness = OciHarness(root, "runsc", await store.resolve("host"), shared / "bundles")
        try:
            await (await harness.make_driver()).close()
        except RuntimeUnavailable as reason:
            raise SkipTest(f"runsc: {reason}") from None  # one line for all tests, unlike pytest.skip
        yield harness
    finally:
        unmount_below(root)
        shutil.rmtree(root, ignore_errors=True)


class TestGvisor(DriverConformance):
    """What differs: gVisor's kernel and all processes inside are one process of the host."""

    async def test_memory_is_limited(self, harness: Harness) -> None:
        """The host can only end all of it: the sandbox dies, and its end says of what."""
        async with limited(harness, "memory_limit", memory_mb=MEMORY_MB) as box:
            counter = box.driver.oom_counter(box.handle)
            assert counter is not None
            assert counter.read() == 0
            asked = asyncio.create_task(box.run(f"head -c {MEMORY_MB * 4}M /dev/zero | tail -c {MEMORY_MB * 4}M"))

            async def is_dead() -> bool:
                info = await box.driver.inspect(box.handle)
                return info.state is SandboxState.STOPPED and info.oom_killed

            await eventually(is_dead, "four times its memory ends it")
            assert counter.read() >= 1
            assert (await box.driver.stats(box.handle)).oom_kills == counter.read()
            counter.close()
            asked.cancel()

    test_kills_for_want_of_memory_are_counted = test_memory_is_limited
