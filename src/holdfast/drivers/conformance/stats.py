"""What a driver says about what its sandboxes use. What it cannot know it leaves out; what it says is right."""

import asyncio
import time

from holdfast.drivers.conformance.harness import DriverHarness, eventually, need, need_shell, raised, sandbox, sandboxes
from holdfast.drivers.conformance.limits import limited
from holdfast.errors import SandboxNotFound

MIB = 1 << 20
CPU_SHARE = 0.25
BUSY_MS = 2000


class StatsConformance:
    """Uses something, and looks for it in the stats."""

    async def test_stats_of_nothing(self, harness: DriverHarness) -> None:
        driver = await harness.make_driver()
        with raised(SandboxNotFound):
            await driver.stats(driver.handle_for("ses_0000000000000000"))
        await driver.close()

    async def test_stats_of_an_idle_sandbox(self, harness: DriverHarness) -> None:
        async with sandbox(harness) as box:
            stats = await box.driver.stats(box.handle)
            numbers = [stats.cpu_seconds, stats.memory_bytes, stats.memory_peak_bytes, stats.processes, stats.oom_kills]
            assert all(number is None or number >= 0 for number in numbers), stats
            assert (stats.disk_bytes is None) == (stats.disk_limit_bytes is None), stats
            if box.driver.capabilities.disk_limit:
                assert stats.disk_bytes is not None and stats.disk_limit_bytes is not None, stats
                assert stats.disk_bytes < stats.disk_limit_bytes <= box.spec.limits.disk_mb * MIB, stats
            if box.driver.capabilities.memory_limit:
                assert stats.memory_bytes is not None and stats.memory_bytes <= box.spec.limits.memory_mb * MIB, stats
                assert stats.oom_kills == 0, stats

    async def test_another_daemon_sees_the_same(self, harness: DriverHarness) -> None:
        async with sandbox(harness) as box:
            await box.run("true")  # a shell that starts has children of its own for a moment
            other = await harness.make_driver()
            one, two = await box.driver.stats(box.handle), await other.stats(box.handle)
            await other.close()
            assert (one.processes, one.disk_limit_bytes) == (two.processes, two.disk_limit_bytes)

    async def test_many_at_once(self, harness: DriverHarness) -> None:
        async with sandboxes(harness, 3) as boxes:
            found = await asyncio.gather(*(box.driver.stats(box.handle) for box in boxes))
            assert len({stats.disk_limit_bytes for stats in found}) == 1

    async def test_what_a_command_uses_is_seen(self, harness: DriverHarness) -> None:
        need_shell(harness)
        async with sandbox(harness) as box:
            await box.run("true")
            before = await box.driver.stats(box.handle)
            held = 24 * MIB
            await box.run(f"held=$(head -c {held} /dev/zero | tr '\\0' x); for _ in 1 2 3; do sleep 1000 & done")
            await box.run(f"head -c {4 * MIB} /dev/zero > $HOME/file")
            after = await box.driver.stats(box.handle)
            if before.memory_bytes is not None and after.memory_bytes is not None:
                assert after.memory_bytes >= before.memory_bytes + held, f"{before} {after}"
            if before.processes is not None and after.processes is not None:
                assert after.processes == before.processes + 3, f"{before} {after}"
            if before.disk_bytes is not None and after.disk_bytes is not None:
                assert 4 * MIB <= after.disk_bytes - before.disk_bytes <= 5 * MIB, f"{before} {after}"
            if before.cpu_seconds is not None and after.cpu_seconds is not None:
                assert after.cpu_seconds > before.cpu_seconds, f"{before} {after}"

    async def test_cpu_is_limited(self, harness: DriverHarness) -> None:
        """A busy loop gets its share and no more, however idle the machine is."""
        async with limited(harness, "cpu_limit", cpus=CPU_SHARE) as box:
            before, began = await box.driver.stats(box.handle), time.monotonic()
            await box.run("while :; do :; done", timeout_ms=BUSY_MS)
            after, ended = await box.driver.stats(box.handle), time.monotonic()
            assert before.cpu_seconds is not None and after.cpu_seconds is not None
            used, share = after.cpu_seconds - before.cpu_seconds, CPU_SHARE * (ended - began)
            assert 0 < used <= share * 1.1 + 0.1, f"{used:.2f} s of CPU in {ended - began:.2f} s"

    async def test_kills_for_want_of_memory_are_counted(self, harness: DriverHarness) -> None:
        async with limited(harness, "memory_limit", memory_mb=64) as box:
            counter = box.driver.oom_counter(box.handle)
            need(counter is not None, "this driver does not count kills")
            assert counter is not None
            try:
                assert counter.read() == 0
                result = await box.run("head -c 256M /dev/zero | tail -c 256M > /dev/null; echo $?")
                assert result.stdout == "137\n", f"it had four times its memory: {result}"
                kills = counter.read()
                assert kills >= 1
                assert (await box.driver.stats(box.handle)).oom_kills == kills
            finally:
                counter.close()

    async def test_a_counter_outlives_its_sandbox(self, harness: DriverHarness) -> None:
        async with sandbox(harness) as box:
            counter = box.driver.oom_counter(box.handle)
            need(counter is not None, "this driver does not count kills")
            assert counter is not None
            await box.driver.destroy(box.handle)
            assert counter.read() == 0
            counter.close()
            counter.close()

    async def test_no_stats_of_what_is_destroyed(self, harness: DriverHarness) -> None:
        async with sandbox(harness) as box:
            await box.driver.destroy(box.handle)

            async def is_unknown() -> bool:
                try:
                    await box.driver.stats(box.handle)
                except SandboxNotFound:
                    return True
                return False

            await eventually(is_unknown, "a destroyed sandbox has no stats")
