"""Named workspaces: files that outlive the sandbox, and belong to one at a time."""

from holdfast.drivers.conformance.harness import (
    LIMITS,
    DriverHarness,
    eventually,
    is_connected,
    is_stopped,
    need,
    need_ability,
    need_shell,
    raised,
    read,
    sandbox,
    start_again,
    write,
)
from holdfast.errors import DriverConflict, DriverUnsupported

FILE = "/workspace/file"


class WorkspaceConformance:
    """``SandboxSpec.workspace``, remove_workspace."""

    async def test_a_workspace_outlives_its_sandbox(self, harness: DriverHarness) -> None:
        place = harness.keep_dir() / "name"
        async with sandbox(harness, needs="workspace", workspace=place) as first:
            await write(first, FILE, b"kept")
            assert await first.driver.measure(place) > 0
        for content in (b"kept", b"changed"):
            async with sandbox(harness, needs="workspace", workspace=place) as next_one:
                assert await read(next_one, FILE) == content
                await write(next_one, FILE, b"changed")
        async with sandbox(harness) as other:
            assert await read(other, FILE) is None
            await other.driver.remove_workspace(place)
            await other.driver.remove_workspace(place)
            assert await other.driver.measure(place) == 0
        async with sandbox(harness, needs="workspace", workspace=place) as fresh:
            assert await read(fresh, FILE) is None, "what was removed has come back"

    async def test_a_workspace_is_one_sandboxs_at_a_time(self, harness: DriverHarness) -> None:
        place = harness.keep_dir() / "name"
        async with sandbox(harness, needs="workspace", workspace=place) as box:
            await write(box, FILE, b"mine")
            with raised(DriverConflict):
                async with sandbox(harness, workspace=place):
                    pass
            with raised(DriverConflict):
                await box.driver.remove_workspace(place)
            assert await read(box, FILE) == b"mine"
            if box.driver.capabilities.stop:
                await box.driver.stop(box.handle)
                with raised(DriverConflict):
                    await box.driver.remove_workspace(place)
                with raised(DriverConflict):
                    async with sandbox(harness, workspace=place):
                        pass
                await start_again(box)
                assert await read(box, FILE) == b"mine"
        async with sandbox(harness, workspace=place) as other:
            assert await read(other, FILE) == b"mine"

    async def test_a_killed_sandbox_leaves_its_workspace_whole(self, harness: DriverHarness) -> None:
        place = harness.keep_dir() / "name"
        async with sandbox(harness, needs="workspace", workspace=place) as box:
            await write(box, FILE, b"mine")
            await harness.kill_runner(box)
            await eventually(lambda: is_stopped(box), "inspect says that the killed sandbox has stopped")
            await box.driver.create(box.spec)
            await eventually(lambda: is_connected(box), "the runner dials again")
            assert await read(box, FILE) == b"mine"

    async def test_a_snapshot_holds_the_workspace_too(self, harness: DriverHarness) -> None:
        keep = harness.keep_dir()
        async with sandbox(harness, needs="workspace", workspace=keep / "name") as box:
            need_ability(box.driver, "snapshot")
            await write(box, FILE, b"kept")
            await write(box, "/tmp/own", b"own")  # noqa: S108 - inside the sandbox
            await box.driver.snapshot(box.handle, keep / "one")
            async with sandbox(harness, keep / "one") as child:
                assert await read(child, FILE) == b"kept"
                assert await read(child, "/tmp/own") == b"own"  # noqa: S108
                await write(child, FILE, b"child's")
                await child.driver.snapshot(child.handle, keep / "two")
            assert await read(box, FILE) == b"kept"
            async with sandbox(harness, keep / "two") as grandchild:
                assert await read(grandchild, FILE) == b"child's"
                if grandchild.driver.capabilities.stop:
                    await start_again(grandchild)
                    assert await read(grandchild, FILE) == b"child's"
        async with sandbox(harness, keep / "two", workspace=keep / "name") as other:
            assert await read(other, FILE) == b"kept", "the workspace that was asked for is not shown"
            assert await read(other, "/tmp/own") == b"own"  # noqa: S108

    async def test_a_workspace_has_a_limit(self, harness: DriverHarness) -> None:
        need_shell(harness)
        async with sandbox(harness, needs="workspace", workspace=harness.keep_dir() / "name") as box:
            need(box.driver.capabilities.disk_limit, "disks have no limit here")
            result = await box.run(f"head -c {LIMITS.disk_mb * 2}M /dev/zero > ~/fill")
            assert result.exit_code != 0, "twice the disk fitted into the workspace"
            stats = await box.driver.stats(box.handle)
            assert stats.disk_bytes is not None
            assert stats.disk_bytes > LIMITS.disk_mb << 19, f"the workspace's files are not counted: {stats}"

    async def test_without_the_capability_it_is_unsupported(self, harness: DriverHarness) -> None:
        driver = await harness.make_driver()
        if not driver.capabilities.workspace:
            with raised(DriverUnsupported):
                async with sandbox(harness, workspace=harness.keep_dir() / "name"):
                    pass
        await driver.close()
