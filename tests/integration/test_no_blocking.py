"""Nothing in the daemon blocks its event loop: one slow disk must not stop every session.

The whole daemon runs inside the test, on the real driver where this machine has one, with BlockBuster watching.
"""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from blockbuster import blockbuster_ctx

from holdfast.callers.types import ROOT
from holdfast.daemon.config.config import Config
from holdfast.daemon.wiring import wiring
from holdfast.sessions.types import CreateRequest, ExecRequest, ForkRequest
from support.daemons.daemon import unusable_driver
from support.machine.state_dir import open_state_dir

pytestmark = pytest.mark.anyio


@pytest.fixture
def state_dir() -> Iterator[Path]:
    with open_state_dir() as directory:
        yield directory


@pytest.mark.parametrize("driver", ["oci", "process"])
async def test_the_life_of_a_session(driver: str, state_dir: Path) -> None:
    if driver == "oci":
        reason = await anyio.to_thread.run_sync(unusable_driver)
        if reason:
            pytest.skip(reason)
    config = Config.model_validate({"state_dir": state_dir, "driver": driver, "api_key": "k" * 32, "pool": {"host": 1}})
    async with wiring.running(config) as daemon:  # starting up may take its time; serving may not
        with blockbuster_ctx("holdfast"):
            service = daemon.service
            session = await service.create(
                CreateRequest(writable_root=driver == "oci" or None), idempotency_key="one", caller=ROOT
            )
            result = await service.exec(session.id, ExecRequest("echo hello; pwd"), idempotency_key="two")
            assert result.stdout.startswith(b"hello\n")
            home = result.cwd
            for size in (10, 3 << 20):
                await service.write_file(session.id, f"{home}/file", b"x" * size, mode=None)
                data, _ = await service.read_file(session.id, f"{home}/file", max_bytes=None)
                assert data == b"x" * size
            assert (await service.exec_result(session.id, result.exec_id)).stdout == result.stdout
            assert (await service.stats(session.id)).processes
            rows, _ = await service.list(status=None, limit=10, cursor=None, caller=ROOT)
            await service.stats_of(rows)
            pooled = await service.create(CreateRequest(env={"A": "b"}), idempotency_key=None, caller=ROOT)
            assert (await service.exec(pooled.id, ExecRequest("echo $A"), idempotency_key=None)).stdout == b"b\n"
            await service.destroy(pooled.id)
            await service._housekeeping.tick()
            await service.destroy(session.id)


async def test_snapshots_forks_and_workspaces(state_dir: Path) -> None:
    reason = await anyio.to_thread.run_sync(unusable_driver)
    if reason:
        pytest.skip(reason)
    config = Config.model_validate({"state_dir": state_dir, "driver": "oci", "api_key": "k" * 32})
    async with wiring.running(config) as daemon:
        with blockbuster_ctx("holdfast"):
            service = daemon.service
            session = await service.create(CreateRequest(workspace="work"), idempotency_key=None, caller=ROOT)
            await service.write_file(session.id, "/workspace/file", b"kept", mode=None)
            await service.snapshots.create(session.id, "one", idempotency_key=None, caller=ROOT)
            child, _ = await service.fork(session.id, ForkRequest(), idempotency_key=None, caller=ROOT)
            other = await service.create(CreateRequest(snapshot="one"), idempotency_key=None, caller=ROOT)
            for made in (child, other):
                assert (await service.read_file(made.id, "/workspace/file", max_bytes=None))[0] == b"kept"
            for made in (session, child, other):
                await service.destroy(made.id)
            await service.snapshots.delete("one", caller=ROOT)
            await service.workspaces.delete("work", caller=ROOT)
