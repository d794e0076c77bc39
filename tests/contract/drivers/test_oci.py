"""The OCI driver, with each runtime, on real containers. Needs what ``holdfast doctor`` asks for."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from unittest import SkipTest

import pytest

from holdfast.drivers.base import Driver, ImageRoot
from holdfast.drivers.conformance import DriverConformance, DriverHarness
from holdfast.drivers.oci.config import ID_BASE
from holdfast.drivers.oci.driver import OciDriver
from holdfast.errors import RuntimeUnavailable
from holdfast.images.store import ImageStore
from holdfast.link.hub import LinkHub
from support.machine.call_conformance import SystemCallConformance
from support.machine.earlier import check_adoption
from support.machine.leftovers import leftovers
from support.machine.places import full_dir, made
from support.machine.state_dir import open_state_dir

pytestmark = pytest.mark.anyio


class OciHarness(DriverHarness):
    def __init__(self, root: Path, runtime: str, image: ImageRoot, bundles: Path) -> None:
        self.image = image
        self.state_dir = root / "s"
        self._root = root
        self._bundles = bundles
        self.runtime = runtime

    async def make_driver(self) -> Driver:
        return await self._prepared(self.state_dir)

    async def make_stranger(self) -> Driver:
        return await self._prepared(self._root / "other")

    async def _prepared(self, state_dir: Path) -> Driver:
        state_dir.mkdir(0o711, exist_ok=True)
        if not (state_dir / "runtime-bundle").is_symlink():  # making one takes longer than a test
            (state_dir / "runtime-bundle").symlink_to(self._bundles)
        driver = OciDriver(state_dir, runtime=self.runtime)
        await driver.prepare()
        return driver

    def make_hub(self) -> LinkHub:
        return LinkHub(self._root / "l")

    def leftovers(self, session_id: str) -> list[str]:
        return leftovers(session_id, self._root)

    def keep_dir(self) -> Path:
        return made(self._root / "keep")

    def full_dir(self) -> Path | None:
        return full_dir(self._root / "full")


@pytest.fixture(scope="session")
def shared() -> Iterator[Path]:
    """Where the runtime bundle and the image are that all tests use."""
    with open_state_dir() as root:
        (root / "bundles").mkdir()
        yield root


@pytest.fixture(scope="session")
def refused() -> dict[str, str]:
    """Why a runtime cannot work here, once that was found out: it is asked no more."""
    return {}


@pytest.fixture(params=["runc", "crun"])
async def harness(request: pytest.FixtureRequest, shared: Path, refused: dict[str, str]) -> AsyncIterator[OciHarness]:
    if request.param in refused:
        raise SkipTest(refused[request.param])
    with open_state_dir() as root:
        store = ImageStore(shared / "images", id_base=ID_BASE if os.geteuid() == 0 else None)
        harness = OciHarness(root, request.param, await store.resolve("host"), shared / "bundles")
        try:
            await (await harness.make_driver()).close()
        except RuntimeUnavailable as reason:
            refused[request.param] = f"{request.param}: {reason}"
            raise SkipTest(refused[request.param]) from None  # one line for all tests, unlike pytest.skip
        yield harness


class TestOciDriver(DriverConformance):
    pass


async def test_a_sandbox_of_an_earlier_version_is_adopted(harness: OciHarness) -> None:
    await check_adoption(harness)


class TestSystemCalls(SystemCallConformance):
    pass
