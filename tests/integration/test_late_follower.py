"""A command that is started to be followed, on a real runner, by somebody who comes late."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.drivers.base import ImageRoot, SandboxSpec
from holdfast.drivers.process import ProcessDriver
from holdfast.errors import SessionGone
from holdfast.link.hub import LinkHub
from holdfast.link.link import Link
from holdfast.records.limits import Limits, Network
from holdfast.sessions.types import ExecRequest
from holdfast.sessions.use.execs import exec_fields
from holdfast.sessions.use.follow import Chunk, follow

pytestmark = pytest.mark.anyio

SESSION, TOKEN = "ses_latefollower", "token"
SIZE, KEPT = 8_000_000, 1_000_000
WRITES_ALL = f"head -c {SIZE} /dev/zero; touch all_is_written"
WAITS_FOR_ALL = "for _ in {1..100}; do [ -e all_is_written ] && break; sleep 0.01; done"
"""A second is enough for a command that nothing holds up; one that is held up waits for us."""


@contextlib.asynccontextmanager
async def runner(root: Path) -> AsyncIterator[Link]:
    hub, driver = LinkHub(root / "links"), ProcessDriver(root / "state")
    await driver.prepare()
    link = await hub.listen(SESSION, TOKEN)
    image, limits = ImageRoot("ignored", root), Limits(1, 64, 64, 64)
    spec = SandboxSpec(SESSION, image, limits, Network.NONE, False, {}, hub.directory(SESSION), TOKEN)
    handle = await driver.create(spec)
    try:
        await link.wait_connected(10)
        yield link
    finally:
        await hub.close(SESSION, SessionGone("the test is over"))
        await driver.destroy(handle)
        await driver.close()


async def test_all_output_is_there_for_a_follower_that_comes_late(tmp_path: Path) -> None:
    async with runner(tmp_path) as link:
        await link.call("exec.start", *exec_fields("exe_1", ExecRequest(WRITES_ALL), 60_000, KEPT), timeout=10)
        meanwhile = ExecRequest(WAITS_FOR_ALL, shell="other")
        await link.call("exec", *exec_fields("exe_2", meanwhile, 60_000, KEPT), timeout=75)
        position = 0
        async with contextlib.aclosing(follow(link, "exec.attach", {"exec_id": "exe_1"}, 0)) as events:
            async for event in events:
                if isinstance(event, Chunk):
                    assert (event.offset, event.dropped) == (position, 0)
                    position = event.end
        assert position == SIZE
