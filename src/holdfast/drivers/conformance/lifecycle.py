"""Making, finding and destroying sandboxes: one test per sentence of the contract."""

import asyncio
import contextlib
import time
from dataclasses import replace

from holdfast.drivers.base import Check, Driver, Handle, SandboxInfo, SandboxState
from holdfast.drivers.conformance.harness import (
    PATIENCE_SECONDS,
    DriverHarness,
    SandboxUnderTest,
    assert_nothing_left,
    clean_up,
    cut_off,
    eventually,
    is_stopped,
    need_shell,
    new_spec,
    open_hub,
    raised,
    sandbox,
    sandboxes,
    session_ids,
    start,
)
from holdfast.errors import DriverConflict, DriverUnsupported, HoldfastError, SandboxNotFound

MAX_HANDLE = 2048
CANCEL_POINTS = 8


class LifecycleConformance:
    """create, destroy, inspect, list, handle_for, check."""

    async def test_check_says_what_it_finds_and_changes_nothing(self, harness: DriverHarness) -> None:
        driver = await harness.make_driver()
        checks = await driver.check()
        assert checks, "check returned no line at all"
        assert all(isinstance(check, Check) and check.name and check.detail for check in checks), f"{checks}"
        silent = [check.name for check in checks if not check.ok and not check.remedy]
        assert not silent, f"failed checks without a remedy: {silent}"
        assert await session_ids(driver) == [], "check has made a sandbox"

    async def test_a_created_sandbox_is_running_and_listed(self, harness: DriverHarness) -> None:
        async with sandbox(harness) as box:
            info = await box.driver.inspect(box.handle)
            assert info == SandboxInfo(box.handle, box.spec.session_id, SandboxState.RUNNING), f"{info}"
            assert list(await box.driver.list()) == [info]

    async def test_the_handle_is_short_and_holds_no_secret(self, harness: DriverHarness) -> None:
        async with sandbox(harness) as box:
            assert box.handle == box.driver.handle_for(box.spec.session_id), "handle_for gives another handle"
            assert 0 < len(box.handle) <= MAX_HANDLE, f"the handle has {len(box.handle)} characters"
            assert box.spec.token not in box.handle, "the token is in the handle"

    async def test_create_twice_is_a_conflict_and_harms_nobody(self, harness: DriverHarness) -> None:
        async with sandbox(harness) as box:
            error = await error_of(box.driver, "create", box)
            assert isinstance(error, DriverConflict), f"the second create raised {error!r}"
            assert (await box.run("echo still here")).stdout == "still here\n"

    async def test_a_handle_is_good_in_another_daemon(self, harness: DriverHarness) -> None:
        async with sandbox(harness) as box:
            other = await harness.make_driver()
            info = await other.inspect(box.handle)
            assert info.state is SandboxState.RUNNING, f"the other daemon sees {info}"
            assert other.handle_for(box.spec.session_id) == box.handle
            assert isinstance(await error_of(other, "create", box), DriverConflict)
            await other.destroy(box.handle)
            assert isinstance(await error_of(box.driver, "inspect", box), SandboxNotFound)
            await other.close()

    async def test_an_unknown_sandbox_is_not_found(self, harness: DriverHarness) -> None:
        driver = await harness.make_driver()
        unknown = driver.handle_for("ses_thereisnosuchsession")
        with raised(SandboxNotFound):
            await driver.inspect(unknown)
        await driver.destroy(unknown)
        assert await session_ids(driver) == []

    async def test_a_foreign_handle_is_an_error_and_touches_nothing(self, harness: DriverHarness) -> None:
        async with sandbox(harness) as box:
            for text in ("", ".", "..", "nonsense", "a/b", "--help", "x" * MAX_HANDLE):
                with raised(HoldfastError):
                    await box.driver.inspect(Handle(text))
                with contextlib.suppress(HoldfastError):
                    await box.driver.destroy(Handle(text))
            assert await session_ids(box.driver) == [box.spec.session_id]
            assert (await box.run("echo unharmed")).stdout == "unharmed\n"

    async def test_destroy_leaves_nothing_also_when_asked_twice(self, harness: DriverHarness) -> None:
        async with sandbox(harness) as box:
            await box.driver.destroy(box.handle)
            assert_nothing_left_but_link(harness, box)
            await box.driver.destroy(box.handle)
            assert await session_ids(box.driver) == []
            assert isinstance(await error_of(box.driver, "inspect", box), SandboxNotFound)

    async def test_destroy_at_the_same_time_from_several_tasks(self, harness: DriverHarness) -> None:
        async with sandbox(harness) as box:
            await asyncio.gather(*(box.driver.destroy(box.handle) for _ in range(3)))
            assert await session_ids(box.driver) == []

    async def test_destroy_ends_commands_and_what_they_left_running(self, harness: DriverHarness) -> None:
        need_shell(harness)
        async with sandbox(harness) as box:
            await box.run(
                "sleep 1000 & (trap '' HUP INT TERM; setsid sleep 1000 &) ; nohup sleep 1000 >/dev/null 2>&1 &"
            )
            await box.run("env -i setsid sleep 1000 >/dev/null 2>&1 & disown -a")
            foreground = asyncio.create_task(box.run("trap '' INT TERM; sleep 1000; sleep 1000"))
            await box.link.call("ping", {}, timeout=PATIENCE_SECONDS)
            await box.driver.destroy(box.handle)
            assert_nothing_left_but_link(harness, box)
            foreground.cancel()

    async def test_destroy_removes_files_that_resist(self, harness: DriverHarness) -> None:
        need_shell(harness)
        async with sandbox(harness) as box:
            locked = (
                "mkdir -p a/b/c && touch a/b/c/file && chmod 0 a/b/c && chmod 0 a/b && chmod 0 a && mkdir -m 0 shut"
            )
            assert (await box.run(f"cd && ln -s / everything && {locked}")).exit_code == 0
            deep = "deep=$(printf 'd/%.0s' {1..1200}); mkdir -p $deep && cd $deep && mkdir -p $deep; cd"
            assert (await box.run(deep)).exit_code == 0

    async def test_a_killed_runner_is_stopped_and_not_absent(self, harness: DriverHarness) -> None:
        async with sandbox(harness) as box:
            await harness.kill_runner(box)
            await eventually(lambda: is_stopped(box), "inspect says that the killed sandbox has stopped")
            assert await session_ids(box.driver) == [box.spec.session_id], "a stopped sandbox is not listed"

    async def test_a_stopped_sandbox_makes_way_for_a_new_one(self, harness: DriverHarness) -> None:
        async with sandbox(harness) as box:
            await harness.kill_runner(box)
            await eventually(lambda: is_stopped(box), "inspect says that the killed sandbox has stopped")
            await box.driver.create(box.spec)
            await box.link.wait_connected(PATIENCE_SECONDS)
            assert (await box.run("echo new")).stdout == "new\n"

    async def test_list_shows_all_of_ours_and_no_others(self, harness: DriverHarness) -> None:
        async with sandboxes(harness, 3) as boxes:
            ours = sorted(box.spec.session_id for box in boxes)
            assert await session_ids(boxes[0].driver) == ours
            stranger = await harness.make_stranger()
            assert await session_ids(stranger) == [], "list shows what another state directory's driver has made"
            await boxes[0].driver.destroy(boxes[0].handle)
            assert await session_ids(boxes[0].driver) == [name for name in ours if name != boxes[0].spec.session_id]
            await stranger.close()

    async def test_the_same_id_in_another_state_directory_is_another_sandbox(self, harness: DriverHarness) -> None:
        """As with a backup that is restored beside its original."""
        async with sandbox(harness) as box:
            stranger = await harness.make_stranger()
            nobody_listens = replace(box.spec, link_dir=harness.keep_dir())
            twin = await stranger.create(nobody_listens)
            try:
                if stranger.capabilities.pause:
                    await stranger.pause(twin)
                    assert (await box.run("echo awake")).stdout == "awake\n", "to pause one has paused both"
                await stranger.destroy(twin)
                assert (await box.run("echo unharmed")).stdout == "unharmed\n", "to destroy one has destroyed both"
                await stranger.create(nobody_listens)
                await box.driver.destroy(box.handle)
                assert (await stranger.inspect(twin)).state is SandboxState.RUNNING
            finally:
                await stranger.destroy(twin)
                await stranger.close()

    async def test_five_at_once(self, harness: DriverHarness) -> None:
        async with open_hub(harness) as hub:
            driver = await harness.make_driver()
            specs = [new_spec(harness, hub) for _ in range(5)]
            try:
                boxes = await asyncio.gather(*(start(driver, hub, spec) for spec in specs))
                results = await asyncio.gather(*(box.run(f"echo {box.handle}") for box in boxes))
                assert [result.stdout for result in results] == [f"{box.handle}\n" for box in boxes]
                assert await session_ids(driver) == sorted(spec.session_id for spec in specs)
            finally:
                await asyncio.gather(*(clean_up(harness, driver, hub, spec) for spec in specs))
            assert await session_ids(driver) == []

    async def test_a_cancelled_create_leaves_nothing_hidden(self, harness: DriverHarness) -> None:
        """Cancel at points spread over the time that a create takes; whatever is left, list shows and destroy ends."""
        async with open_hub(harness) as hub:
            driver = await harness.make_driver()
            spec = new_spec(harness, hub)
            began = time.monotonic()
            await start(driver, hub, spec)
            duration = time.monotonic() - began
            await clean_up(harness, driver, hub, spec)
            for point in range(CANCEL_POINTS):
                spec = new_spec(harness, hub)
                await hub.listen(spec.session_id, spec.token)
                await cut_off(driver.create(spec), duration * point / CANCEL_POINTS)
                shown = await session_ids(driver)
                assert shown in ([], [spec.session_id]), f"list shows {shown}"
                if not shown:
                    await hub.close(spec.session_id, SandboxNotFound("never made"))
                    assert_nothing_left(harness, spec.session_id)
                await clean_up(harness, driver, hub, spec)
                assert await session_ids(driver) == []

    async def test_create_removes_what_a_cut_off_create_left(self, harness: DriverHarness) -> None:
        async with open_hub(harness) as hub:
            driver = await harness.make_driver()
            for after in (0.0, 0.01, 0.05, 0.1):
                spec = new_spec(harness, hub)
                link = await hub.listen(spec.session_id, spec.token)
                await cut_off(driver.create(spec), after)
                try:
                    await driver.create(spec)
                except DriverConflict:  # it had got far enough to run
                    assert (await driver.inspect(driver.handle_for(spec.session_id))).state is SandboxState.RUNNING
                await link.wait_connected(PATIENCE_SECONDS)
                await clean_up(harness, driver, hub, spec)

    async def test_what_cannot_be_created_is_a_known_error(self, harness: DriverHarness) -> None:
        need_shell(harness)
        async with open_hub(harness) as hub:
            driver = await harness.make_driver()
            spec = new_spec(harness, hub, env={"BAD": "nul\0byte"})
            with raised(HoldfastError):
                await driver.create(spec)
            await clean_up(harness, driver, hub, spec)
            assert await session_ids(driver) == []

    async def test_what_the_capabilities_deny_is_unsupported(self, harness: DriverHarness) -> None:
        driver = await harness.make_driver()
        handle = driver.handle_for("ses_unknown")
        if not driver.capabilities.pause:
            with raised(DriverUnsupported):
                await driver.pause(handle)
        if not driver.capabilities.snapshot:
            with raised(DriverUnsupported):
                await driver.snapshot(handle, harness.keep_dir() / "one")
            with raised(DriverUnsupported):
                await driver.forget_snapshot(harness.keep_dir() / "one")
        if not driver.capabilities.workspace:
            with raised(DriverUnsupported):
                await driver.remove_workspace(harness.keep_dir() / "one")


async def error_of(driver: Driver, method: str, box: SandboxUnderTest) -> HoldfastError | None:
    """Return what a call raises; anything but a HoldfastError fails the test."""
    try:
        await (driver.create(box.spec) if method == "create" else driver.inspect(box.handle))
    except HoldfastError as error:
        return error
    return None


def assert_nothing_left_but_link(harness: DriverHarness, box: SandboxUnderTest) -> None:
    """The link's directory is the hub's, and still open."""
    link_dir = str(box.spec.link_dir)
    left = [line for line in harness.leftovers(box.spec.session_id) if link_dir not in line]
    assert not left, f"destroy left behind: {'; '.join(left)}"
