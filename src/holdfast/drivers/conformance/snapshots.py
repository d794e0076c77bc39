"""Snapshots: the files of one moment, any number of new sandboxes from them, and a sandbox that notices nothing."""

import time
from dataclasses import replace

from holdfast.drivers.base import SandboxState
from holdfast.drivers.conformance.harness import (
    LIMITS,
    PATIENCE_SECONDS,
    DriverHarness,
    SandboxUnderTest,
    clean_up,
    cut_off,
    eventually,
    need,
    need_ability,
    need_shell,
    new_spec,
    open_hub,
    raised,
    read,
    sandbox,
    sandboxes,
    skip_if_unsupported,
    start,
    start_again,
    write,
)
from holdfast.errors import (
    BadInput,
    DriverConflict,
    DriverQuota,
    DriverUnsupported,
    SandboxNotFound,
    SnapshotBroken,
)

FILE = "/workspace/file"
CUT_OFF_POINTS = 3

# Each pair of files grows by the same line, the first one before the second. Large files lie between them, in whichever
# order they are copied.
_PAIRS = (
    "head -c 12M /dev/urandom > /workspace/large; head -c 12M /dev/urandom > /tmp/large; "
    "while :; do echo >> /workspace/a; echo >> /tmp/b; echo >> /tmp/c; echo >> /workspace/d; done >/dev/null 2>&1 &"
)
_COUNT_PAIRS = "wc -l < /workspace/a; wc -l < /tmp/b; wc -l < /tmp/c; wc -l < /workspace/d"

_MAKE_KINDS = """cd /workspace && umask 022 &&
echo text > plain && chmod 640 plain && touch -d '2001-02-03 04:05:06' plain && ln -s plain link && ln plain hard &&
ln -s /nonexistent dangling && mkdir -m 1777 shared && mkdir -m 500 shut && mkfifo -m 600 pipe &&
truncate -s 100M sparse && echo closed > closed && chmod 0 closed && echo odd > $'odd\\nname \\xff' || exit 1
python3 -c "import os; os.setxattr('plain', 'user.kept', b'yes')" || true
"""
_SHOW_KINDS = """cd /workspace
find plain link hard dangling shared shut pipe sparse closed odd* -prune -printf '%p %y %m %U %G %n %s %T@\\n'
readlink link dangling; cat plain; [ $(find sparse -printf %b) -lt 100 ] && echo holes
python3 -c "import os; print(os.getxattr('plain', 'user.kept'))"
"""


class SnapshotConformance:
    """snapshot, restore, forget_snapshot, measure."""

    async def test_a_snapshot_has_the_files_and_the_sandbox_goes_on(self, harness: DriverHarness) -> None:
        async with sandbox(harness, needs="snapshot") as box:
            place = harness.keep_dir() / "one"
            assert await box.driver.measure(place) == 0
            await write(box, FILE, b"before")
            await box.driver.snapshot(box.handle, place)
            await write(box, FILE, b"after")
            assert await read(box, FILE) == b"after"
            assert (await box.driver.inspect(box.handle)).state is SandboxState.RUNNING
            assert await box.driver.measure(place) > 0
            async with sandboxes(harness, 2, place) as children:
                for child in children:
                    assert await read(child, FILE) == b"before"
                    await write(child, FILE, child.handle.encode())
                assert [await read(child, FILE) for child in children] == [child.handle.encode() for child in children]
            assert await read(box, FILE) == b"after"
            await box.driver.destroy(box.handle)
            async with sandbox(harness, place) as late:
                assert await read(late, FILE) == b"before", "a child has changed the snapshot"
            for _ in range(2):
                await box.driver.forget_snapshot(place)
                assert list(harness.keep_dir().iterdir()) == []

    async def test_of_a_paused_and_of_a_stopped_sandbox(self, harness: DriverHarness) -> None:
        async with sandbox(harness, needs="snapshot") as box:
            capabilities, states = box.driver.capabilities, []
            await write(box, FILE, b"kept")
            if capabilities.pause:
                await box.driver.pause(box.handle)
                states.append(SandboxState.PAUSED)
                await box.driver.snapshot(box.handle, harness.keep_dir() / "paused")
                assert (await box.driver.inspect(box.handle)).state is SandboxState.PAUSED
                await box.driver.resume(box.handle)
                assert await read(box, FILE) == b"kept"
            if capabilities.stop:
                await box.driver.stop(box.handle)
                states.append(SandboxState.STOPPED)
                await box.driver.snapshot(box.handle, harness.keep_dir() / "stopped")
                assert (await box.driver.inspect(box.handle)).state is SandboxState.STOPPED
            await box.driver.destroy(box.handle)
            for state in states:
                async with sandbox(harness, harness.keep_dir() / state) as child:
                    assert await read(child, FILE) == b"kept", f"of a {state} sandbox"

    async def test_files_are_those_of_one_moment(self, harness: DriverHarness) -> None:
        need_shell(harness)
        async with sandbox(harness, needs="snapshot") as box:
            await box.run(_PAIRS)
            await eventually(lambda: _has_lines(box), "both loops write")
            place = harness.keep_dir() / "one"
            await box.driver.snapshot(box.handle, place)
            before = await _pairs(box)
            async with sandbox(harness, place) as child:
                a, b, c, d = await _pairs(child)
                assert a - b in (0, 1), f"the files are of different moments: {a} {b}"
                assert c - d in (0, 1), f"the files are of different moments: {c} {d}"
                assert (await child.run("find /workspace/large /tmp/large -printf '%s '")).stdout.split() == [
                    str(12 << 20)
                ] * 2

            async def goes_on() -> bool:
                return all(now > then for now, then in zip(await _pairs(box), before, strict=True))

            await eventually(goes_on, "the loop goes on after the snapshot")
            assert (await box.run("jobs -s")).stdout == "", "the shell has seen its job stop"

    async def test_owners_modes_links_and_attributes_are_kept(self, harness: DriverHarness) -> None:
        need_shell(harness)
        async with sandbox(harness, needs="snapshot") as box:
            made = await box.run(_MAKE_KINDS)
            assert made.exit_code == 0, made
            expected = await box.run(_SHOW_KINDS)
            for seen in ("holes", "b'yes'"):
                assert (seen in expected.stdout) == harness.attributes, expected
            if not harness.attributes:
                await box.run("rm /workspace/pipe")
                expected = await box.run(_SHOW_KINDS)
            await box.driver.snapshot(box.handle, harness.keep_dir() / "one")
            async with sandbox(harness, harness.keep_dir() / "one") as child:
                assert (await child.run(_SHOW_KINDS)).stdout == expected.stdout

    async def test_a_writable_root_is_part_of_it(self, harness: DriverHarness) -> None:
        need_shell(harness)
        place = harness.keep_dir() / "one"
        look = "cat /etc/new; [ -e /etc/passwd ] || echo removed; cat /usr/local/mine/file; readlink /usr/games"
        async with skip_if_unsupported("writable root"), sandbox(harness, needs="snapshot", writable_root=True) as box:
            change = "echo new > /etc/new; rm /etc/passwd; mkdir /usr/local/mine; echo mine > /usr/local/mine/file"
            assert (await box.run(f"{change}; rm -rf /usr/games; ln -s /etc /usr/games")).exit_code == 0
            assert (await box.run(look)).stdout == "new\nremoved\nmine\n/etc\n"
            await box.driver.snapshot(box.handle, place)
            assert (await box.run("echo more > /etc/more && cat /etc/new")).stdout == "new\n"
            async with sandbox(harness, place, writable_root=True) as child:
                assert (await child.run(look)).stdout == "new\nremoved\nmine\n/etc\n"
                later = await child.run("[ -e /etc/more ]; echo $?; echo y > /etc/mine; cat /etc/mine")
                assert later.stdout == "1\ny\n", later
            with raised(BadInput):
                async with sandbox(harness, place, writable_root=False):
                    pass

    async def test_a_disk_may_grow_and_never_shrinks(self, harness: DriverHarness) -> None:
        need_shell(harness)
        place = harness.keep_dir() / "one"
        async with sandbox(harness, needs="snapshot") as box:
            need(box.driver.capabilities.disk_limit, "disks have no limit here")
            await box.run("head -c 20M /dev/urandom > ~/large; cksum < ~/large > ~/sum")
            await box.driver.snapshot(box.handle, place)
            limit = (await box.driver.stats(box.handle)).disk_limit_bytes or 0
        for disk_mb, factor in ((LIMITS.disk_mb * 3, 2.5), (LIMITS.disk_mb // 2, 0.99)):
            async with sandbox(harness, place, limits=replace(LIMITS, disk_mb=disk_mb)) as child:
                now = (await child.driver.stats(child.handle)).disk_limit_bytes or 0
                assert now >= limit * factor, f"{now} bytes with {disk_mb} MB"
                filled = await child.run(f"head -c {int(limit * factor) - (30 << 20)} /dev/zero > ~/more")
                assert filled.exit_code == 0, filled
                assert (await child.run("cksum < ~/large | cmp - ~/sum")).exit_code == 0

    async def test_a_restore_that_was_cut_off_can_be_repeated(self, harness: DriverHarness) -> None:
        place = harness.keep_dir() / "one"
        async with sandbox(harness, needs="snapshot") as box, open_hub(harness) as hub:
            await write(box, FILE, b"kept")
            await box.driver.snapshot(box.handle, place)
            duration = 0.0
            for point in range(CUT_OFF_POINTS):
                spec = new_spec(harness, hub)
                handle = box.driver.handle_for(spec.session_id)
                link = await hub.listen(spec.session_id, spec.token)
                began = time.monotonic()
                await cut_off(box.driver.restore(spec, place), duration * point / CUT_OFF_POINTS if point else None)
                duration = duration or time.monotonic() - began
                try:
                    await box.driver.restore(spec, place)
                except DriverConflict:  # it had got far enough to run
                    assert (await box.driver.inspect(handle)).state is SandboxState.RUNNING
                await link.wait_connected(PATIENCE_SECONDS)
                child = SandboxUnderTest(box.driver, spec, handle, link, hub)
                assert await read(child, FILE) == b"kept"
                await clean_up(harness, box.driver, hub, spec)

    async def test_a_snapshot_is_complete_or_not_there(self, harness: DriverHarness) -> None:
        """Cut off at points spread over the time that it takes; and half of one is never taken for one."""
        keep = harness.keep_dir()
        async with sandbox(harness, needs="snapshot") as box:
            await write(box, FILE, b"kept")
            began = time.monotonic()
            await box.driver.snapshot(box.handle, keep / "whole")
            duration = time.monotonic() - began
            with raised(DriverConflict):
                await box.driver.snapshot(box.handle, keep / "whole")
            for point in range(CUT_OFF_POINTS):
                await cut_off(box.driver.snapshot(box.handle, keep / "cut"), duration * point / CUT_OFF_POINTS)
                assert await read(box, FILE) == b"kept", "the sandbox does not go on"
                if (keep / "cut").exists():
                    async with sandbox(harness, keep / "cut") as child:
                        assert await read(child, FILE) == b"kept"
                await box.driver.forget_snapshot(keep / "cut")
            (keep / "half.new" / "workspace").mkdir(parents=True)
            (keep / "half.new" / "disk.img").write_bytes(b"half")
            (keep / "empty").mkdir()
            for name in ("half", "empty", "none"):
                with raised(SnapshotBroken):
                    async with sandbox(harness, keep / name):
                        pass
            await box.driver.snapshot(box.handle, keep / "half")
            for name in ("half", "empty", "none", "whole"):
                await box.driver.forget_snapshot(keep / name)
            assert list(keep.iterdir()) == []

    async def test_without_room_nothing_is_left_and_the_sandbox_goes_on(self, harness: DriverHarness) -> None:
        need_shell(harness)
        async with sandbox(harness, needs="snapshot") as box:
            full = harness.full_dir()
            if full is None:
                need(False, "there is no full disk to try it on")
                return
            await box.run("head -c 10M /dev/urandom > /workspace/large")
            with raised(DriverQuota):
                await box.driver.snapshot(box.handle, full / "one")
            assert list(full.iterdir()) == []
            assert (await box.run("echo fine > /workspace/file; cat /workspace/file")).stdout == "fine\n"
            await box.driver.snapshot(box.handle, harness.keep_dir() / "one")

    async def test_a_source_that_is_consumed(self, harness: DriverHarness) -> None:
        place = harness.keep_dir() / "one"
        async with sandbox(harness, needs="snapshot") as box, open_hub(harness) as hub:
            await write(box, FILE, b"kept")
            await box.driver.snapshot(box.handle, place, lasting=False)
            spec = new_spec(harness, hub)
            child = await start(box.driver, hub, spec, place, consume=True)
            await box.driver.forget_snapshot(place)
            assert await read(child, FILE) == b"kept"
            await write(child, FILE, b"changed")
            if box.driver.capabilities.stop:
                await start_again(child)
            assert await read(child, FILE) == b"changed"
            assert await read(box, FILE) == b"kept"
            await clean_up(harness, box.driver, hub, spec)

    async def test_what_cannot_be_snapshotted(self, harness: DriverHarness) -> None:
        driver = await harness.make_driver()
        need_ability(driver, "snapshot")
        with raised(SandboxNotFound):
            await driver.snapshot(driver.handle_for("ses_nothing"), harness.keep_dir() / "one")
        assert list(harness.keep_dir().iterdir()) == []
        if not driver.capabilities.memory_copies:
            async with sandbox(harness) as box:
                with raised(DriverUnsupported):
                    await box.driver.snapshot(box.handle, harness.keep_dir() / "one", memory=True)
        await driver.close()


async def _has_lines(box: SandboxUnderTest) -> bool:
    return (await box.run("[ -s /workspace/d ]")).exit_code == 0


async def _pairs(box: SandboxUnderTest) -> list[int]:
    counted = await box.run(_COUNT_PAIRS)
    assert counted.exit_code == 0, counted
    return [int(number) for number in counted.stdout.split()]
