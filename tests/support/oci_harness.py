"""The surroundings of a test of the oci driver: real containers, in a state directory of their own."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest import SkipTest

from holdfast.drivers.base import Driver, ImageRoot
from holdfast.drivers.conformance import Harness
from holdfast.drivers.oci import OciDriver
from holdfast.drivers.oci_config import ID_BASE
from holdfast.errors import RuntimeUnavailable
from holdfast.images.store import ImageStore
from holdfast.link.hub import LinkHub
from support.leftovers import leftovers


class OciHarness(Harness):
    def __init__(self, root: Path, runtime: str, image: ImageRoot) -> None:
        self.image = image
        self._root = root
        self._runtime = runtime

    async def make_driver(self) -> Driver:
        return await self._prepared(self._root / "s")

    async def make_stranger(self) -> Driver:
        return await self._prepared(self._root / "other")

    async def _prepared(self, state_dir: Path) -> Driver:
        state_dir.mkdir(0o711, exist_ok=True)
        driver = OciDriver(state_dir, runtime=self._runtime)
        await driver.prepare()
        return driver

    def make_hub(self) -> LinkHub:
        return LinkHub(self._root / "l")

    def leftovers(self, session_id: str) -> list[str]:
        return leftovers(session_id, self._root)


@asynccontextmanager
async def open_harness(runtime: str) -> AsyncIterator[OciHarness]:
    """One with this runtime; skips the test where that cannot work."""
    root = Path(tempfile.mkdtemp(prefix="hf-", dir="/var/tmp"))
    root.chmod(0o711)  # sandboxes run under other ids and must be able to pass through
    try:
        store = ImageStore(root / "images", id_base=ID_BASE if os.geteuid() == 0 else None)
        harness = OciHarness(root, runtime, await store.resolve("host"))
        try:
            await (await harness.make_driver()).close()
        except RuntimeUnavailable as reason:
            raise SkipTest(f"{runtime}: {reason}") from None  # one line for all tests, unlike pytest.skip
        yield harness
    finally:
        unmount_below(root)
        shutil.rmtree(root, ignore_errors=True)


def unmount_below(root: Path) -> None:
    """Mounts that outlive a daemon on purpose must not outlive the test."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in reversed([mount for mount in mounts if mount.startswith(f"{root}/")]):
        os.spawnlp(os.P_WAIT, "umount", "umount", "--lazy", mount)
