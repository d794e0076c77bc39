"""The steps inside a create, by the driver and the link alone: no HTTP, no store, no daemon."""

import os
import secrets
import shutil
import tempfile
import time
from pathlib import Path

from bench.daemon import unmount
from bench.figure import Figure
from bench.plan import Plan
from bench.samples import Samples
from holdfast.drivers.base import SandboxSpec
from holdfast.drivers.oci.config import ID_BASE
from holdfast.drivers.oci.driver import OciDriver
from holdfast.errors import SessionGone
from holdfast.images.store import ImageStore
from holdfast.link.hub import LinkHub
from holdfast.records.limits import Limits, Network

LIMITS = Limits(cpus=1.0, memory_mb=512, pids=256, disk_mb=2048)
DIAL_SECONDS = 30.0


class _Phases:
    """A driver, a hub and an image, as the daemon would wire them."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self.driver = OciDriver(state_dir)
        self._hub = LinkHub(state_dir / "link")
        self._images = ImageStore(state_dir / "images", id_base=ID_BASE if os.geteuid() == 0 else None)
        self.prepare, self.runtime, self.dial = Samples(), Samples(), Samples()

    async def once(self) -> None:
        """One sandbox, up and down. The runtime starts when its configuration has been written."""
        session_id = f"ses_bench{secrets.token_hex(8)}"
        token = secrets.token_hex(16)
        link = await self._hub.listen(session_id, token)
        image = await self._images.resolve("host")
        spec = SandboxSpec(
            session_id=session_id,
            image=image,
            limits=LIMITS,
            network=Network.NONE,
            writable_root=False,
            env={},
            link_dir=self._hub.directory(session_id),
            token=token,
        )
        began = time.time()
        handle = await self.driver.create(spec)
        try:
            created = time.time()
            await link.wait_connected(DIAL_SECONDS)
            connected = time.time()
            configured = (self._state_dir / "oci" / session_id / "config.json").stat().st_mtime
            self.prepare.add((configured - began) * 1000)
            self.runtime.add((created - configured) * 1000)
            self.dial.add((connected - created) * 1000)
        finally:
            await self._hub.close(session_id, SessionGone("the measurement is over"))
            await self.driver.destroy(handle)


async def measure(plan: Plan, benchmark: str) -> list[Figure]:
    count = plan.count(30, 3)
    plan.say(f"{count} x (driver, dial), without HTTP and store")
    state_dir = Path(tempfile.mkdtemp(prefix="hf-bench-", dir="/var/tmp"))
    state_dir.chmod(0o711)
    try:
        phases = _Phases(state_dir)
        await phases.driver.prepare()
        for _ in range(count):
            await phases.once()
        await phases.driver.close()
    finally:
        unmount(state_dir)
        shutil.rmtree(state_dir, ignore_errors=True)
    return [
        Figure(benchmark, "  phase: driver, up to config.json", "ms", phases.prepare),
        Figure(benchmark, "  phase: driver, runtime run --detach", "ms", phases.runtime),
        Figure(benchmark, "  phase: runner dials", "ms", phases.dial),
    ]
