import os, shutil, tempfile, sys
from pathlib import Path
import pytest
from holdfast.agents.conformance import AgentConformance
from holdfast.agents.pi.adapter import PiAgent
from holdfast.agents.supervisor import Patience
from holdfast.drivers.oci import OciDriver
from holdfast.drivers.oci_config import ID_BASE
from holdfast.images.store import ImageStore
from support.daemon import unmount_below
from support.interim_harness import interim
from support.model_server import model_server
pytestmark = pytest.mark.anyio

@pytest.fixture(scope="module")
def anyio_backend(): return "asyncio"

@pytest.fixture(scope="module")
async def world():
    root = Path(tempfile.mkdtemp(prefix="hf-pi-", dir="/var/tmp")); root.chmod(0o711)
    (root/"s").mkdir(0o711)
    driver = OciDriver(root/"s", runtime="runc"); await driver.prepare()
    images = ImageStore(root/"images", id_base=ID_BASE)
    try:
        async with model_server() as server, interim(root, driver, images, server, lambda: PiAgent(Patience(start=30, health=2.5, quiet=1.0)), "pi") as h:
            yield h
    finally:
        await driver.close(); unmount_below(root); shutil.rmtree(root, ignore_errors=True)

@pytest.fixture
async def harness(world):
    yield world
    world.busy=False

class TestPi(AgentConformance): pass
