"""Checkpoints with memory: what was put on disk goes on where it stood, and costs nothing in between."""

import asyncio
import time

from holdfast.drivers.base import Driver, SandboxState
from holdfast.drivers.conformance.harness import (
    PATIENCE_SECONDS,
    DriverHarness,
    SandboxUnderTest,
    clean_up,
    eventually,
    need_ability,
    need_shell,
    new_spec,
    raised,
    read,
    sandbox,
    start,
)
from holdfast.errors import Conflict, DriverUnsupported, SandboxNotFound

COUNTER = "i=0; while :; do i=$((i+1)); echo $i > /workspace/count; sleep 0.02; done >/dev/null 2>&1 &"
_PROGRAM = (
    "python3 -uc 'import itertools, time\n"
    'for n in itertools.count(): open("/workspace/n", "w").write(f"{n}\\n"); time.sleep(0.02)\' >/dev/null 2>&1 &'
)
_CLOCK_SECONDS = 5.0


async def put_away(box: SandboxUnderTest) -> None:
    await box.hub.quiesce(box.spec.session_id, timeout=PATIENCE_SECONDS)
    await box.driver.checkpoint(box.handle)


async def bring_back(box: SandboxUnderTest, driver: Driver, *, memory: bool = True) -> bool:
    link = await box.hub.listen(box.spec.session_id, box.spec.token)
    came_back = await driver.start(box.handle, memory=memory)
    await link.wait_connected(PATIENCE_SECONDS)
    return came_back


async def assert_goes_on(box: SandboxUnderTest, path: str) -> None:
    before = int((await box.run(f"cat {path}")).stdout or 0)

    async def more() -> bool:
        return int((await box.run(f"cat {path}")).stdout or 0) > before

    await eventually(more, f"what writes {path} goes on")


class MemoryConformance:
    """checkpoint, and start afterwards."""

    async def test_what_was_put_on_disk_goes_on(self, harness: DriverHarness) -> None:
        need_shell(harness)
        async with sandbox(harness, needs="memory") as box:
            await box.run(f"kept=yes; cd /tmp; {COUNTER}")
            await box.run(f"command -v python3 && {_PROGRAM}")
            await assert_goes_on(box, "/workspace/count")
            for _ in range(2):
                await put_away(box)
                info = await box.driver.inspect(box.handle)
                assert (info.state, info.memory, info.busy) == (SandboxState.STOPPED, True, False)
                assert await bring_back(box, box.driver), "its memory is gone"
                assert (await box.driver.inspect(box.handle)).state is SandboxState.RUNNING
                found = await box.run("echo $kept $PWD $(jobs | wc -l); date +%s")
                state, clock = found.stdout.splitlines()
                assert state.split()[:2] == ["yes", "/tmp"], found  # noqa: S108 - inside
                assert abs(int(clock) - time.time()) < _CLOCK_SECONDS, "its clock has stood still"
                await assert_goes_on(box, "/workspace/count")
                if (await box.run("[ -e /workspace/n ]")).exit_code == 0:
                    await assert_goes_on(box, "/workspace/n")

    async def test_nothing_of_it_runs_meanwhile(self, harness: DriverHarness) -> None:
        async with sandbox(harness, needs="memory") as box:
            await put_away(box)
            left = harness.leftovers(box.spec.session_id)
            used = [line for line in left if line.split()[0] in ("process", "mount", "control")]
            assert not used, f"a sandbox on disk still has: {used}"

    async def test_another_daemon_brings_it_back(self, harness: DriverHarness) -> None:
        async with sandbox(harness, needs="memory") as box:
            await box.run("echo before")
            await put_away(box)
            other = await harness.make_driver()
            assert await bring_back(box, other)
            assert (await box.run("echo after")).stdout == "after\n"
            await other.close()

    async def test_its_memory_can_be_given_up(self, harness: DriverHarness) -> None:
        need_shell(harness)
        async with sandbox(harness, needs="memory") as box:
            await box.run(f"echo kept > /workspace/file; kept=yes; {COUNTER}")
            await put_away(box)
            assert not await bring_back(box, box.driver, memory=False), "memory came back that nobody wanted"
            assert (await box.run("cat /workspace/file; echo ${kept:-gone}")).stdout == "kept\ngone\n"
            assert not (await box.driver.inspect(box.handle)).memory

    async def test_stopping_gives_it_up_too(self, harness: DriverHarness) -> None:
        async with sandbox(harness, needs="memory") as box:
            await put_away(box)
            await box.driver.stop(box.handle)
            assert not await bring_back(box, box.driver)
            assert (await box.run("echo fresh")).stdout == "fresh\n"

    async def test_a_sandbox_on_disk_can_be_destroyed(self, harness: DriverHarness) -> None:
        async with sandbox(harness, needs="memory") as box:
            await put_away(box)
            await box.driver.destroy(box.handle)

    async def test_a_copy_goes_on_as_well(self, harness: DriverHarness) -> None:
        need_shell(harness)
        async with sandbox(harness, needs="memory") as box:
            need_ability(box.driver, "memory_copies")
            await box.run(f"kept=yes; {COUNTER}")
            await assert_goes_on(box, "/workspace/count")
            place = harness.keep_dir() / "one"
            with raised(DriverUnsupported):
                await box.driver.snapshot(box.handle, place, memory=True)
            await put_away(box)
            await box.driver.snapshot(box.handle, place, memory=True)
            assert await bring_back(box, box.driver), "its own memory is gone"
            for _ in range(2):
                hub, spec = box.hub, new_spec(harness, box.hub)
                (await hub.listen(spec.session_id, spec.token)).former_token = box.spec.token
                copy = await start(box.driver, hub, spec, place)
                await assert_goes_on(copy, "/workspace/count")
                assert (await copy.run("echo $kept; echo copy > /workspace/who")).stdout == "yes\n"
                copy.link.former_token = None
                await put_away(copy)
                assert await bring_back(copy, box.driver), "a copy has no memory of its own"
                assert (await copy.run("cat /workspace/who")).stdout == "copy\n"
                await clean_up(harness, box.driver, hub, spec)
            await assert_goes_on(box, "/workspace/count")
            assert (await box.run("[ -e /workspace/who ]")).exit_code == 1, "the copy writes to the original's files"
            await box.driver.forget_snapshot(place)

    async def test_who_is_busy_does_not_hang_up(self, harness: DriverHarness) -> None:
        async with sandbox(harness, needs="memory") as box:
            busy = asyncio.create_task(box.run("echo > /workspace/begun; sleep 5" if harness.real_shell else "sleep 5"))
            try:
                if harness.real_shell:
                    await eventually(lambda: _is_there(box, "/workspace/begun"), "the command has begun")
                await eventually(lambda: _refuses(box), "a busy runner refuses to be quiet")
            finally:
                await busy
            assert (await box.run("echo works")).stdout == "works\n"

    async def test_no_memory_where_nothing_is(self, harness: DriverHarness) -> None:
        driver = await harness.make_driver()
        with raised(SandboxNotFound if driver.capabilities.memory else DriverUnsupported):
            await driver.checkpoint(driver.handle_for("ses_nothing"))
        await driver.close()


async def _is_there(box: SandboxUnderTest, path: str) -> bool:
    return await read(box, path) is not None


async def _refuses(box: SandboxUnderTest) -> bool:
    """One that does not dials again at once, as there is no checkpoint."""
    try:
        await box.hub.quiesce(box.spec.session_id, timeout=PATIENCE_SECONDS)
    except Conflict:
        return True
    link = await box.hub.listen(box.spec.session_id, box.spec.token)
    await link.wait_connected(PATIENCE_SECONDS)
    return False
