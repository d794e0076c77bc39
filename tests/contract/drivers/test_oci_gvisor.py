"""The oci driver with gVisor, on real sandboxes. A selection of the suite; all of it with ``TEST_WHOLE_SUITE=1``."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from unittest import SkipTest

import pytest

from contract.drivers.test_oci import OciHarness, unmount_below
from holdfast.drivers.conformance import DriverConformance
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
    pass
