"""The docker driver as the conformance suite wants it, on one Docker daemon and below one directory."""

from pathlib import Path

from holdfast.drivers.base import Driver, ImageRoot
from holdfast.drivers.conformance import DriverHarness
from holdfast.drivers.docker.driver import DockerDriver
from holdfast.link.hub import LinkHub
from support.machine.leftovers import leftovers
from support.machine.places import full_dir, made
from support.servers.dockerd import DockerSocket


class DockerHarness(DriverHarness):
    def __init__(self, root: Path, docker: DockerSocket, bundles: Path) -> None:
        self.image = ImageRoot("none yet", root)
        self.root = root
        self.docker = docker
        self._bundles = bundles
        self._drivers: list[DockerDriver] = []

    async def make_driver(self) -> DockerDriver:
        return await self._prepared(self.root / "s")

    async def make_stranger(self) -> Driver:
        return await self._prepared(self.root / "other")

    async def _prepared(self, state_dir: Path) -> DockerDriver:
        state_dir.mkdir(0o711, exist_ok=True)
        if not (state_dir / "runtime-bundle").is_symlink():  # making one takes longer than a test
            (state_dir / "runtime-bundle").symlink_to(self._bundles)
        driver = DockerDriver(state_dir, host=self.docker.host)
        self._drivers.append(driver)
        await driver.prepare()
        return driver

    def make_hub(self) -> LinkHub:
        return LinkHub(self.root / "l")

    def leftovers(self, session_id: str) -> list[str]:
        containers = [f"container {name}" for name in self.docker.containers() if name == session_id]
        return [*containers, *leftovers(session_id, self.root)]

    def keep_dir(self) -> Path:
        return made(self.root / "keep")

    def full_dir(self) -> Path | None:
        return full_dir(self.root / "full")

    async def close(self) -> None:
        for driver in self._drivers:
            await driver.close()
