"""Trying to end the runner from inside. It is PID 1 where a driver isolates: with it goes the whole session."""

from holdfast.drivers.conformance.harness import PATIENCE_SECONDS, DriverHarness, SandboxUnderTest, skip_if_unsupported
from holdfast.drivers.conformance.isolation import cell

_LAST_SIGNAL = 64
_WHO = "cut -d ' ' -f 22 /proc/1/stat"
"""When PID 1 was started; the same number is the same process."""
_MEDDLE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
seize, own = 0x4206, ctypes.create_string_buffer(8)
vector = (ctypes.c_size_t * 2)(ctypes.addressof(own), 8)
print("ptrace", libc.ptrace(seize, 1, None, None))
print("read", libc.process_vm_readv(1, vector, 1, vector, 1, 0))
print("write", libc.process_vm_writev(1, vector, 1, vector, 1, 0))
for limit in (0, 7, 9):
    print("limit", libc.prlimit(1, limit, (ctypes.c_uint64 * 2)(0, 0), None))
for name in ("mem", "environ", "exe"):
    try:
        os.close(os.open(f"/proc/1/{name}", os.O_RDWR))
        print(name, 0)
    except OSError:
        print(name, -1)
"""


async def same_runner(box: SandboxUnderTest, first: str) -> bool:
    """Say whether the runner answers, and is the one that it was."""
    await box.link.call("ping", {}, timeout=PATIENCE_SECONDS)
    return (await box.run(_WHO)).stdout == first


class FirstProcessConformance:
    """What agents type every day, and what somebody types who means it."""

    async def test_no_signal_from_inside_ends_it(self, harness: DriverHarness) -> None:
        async with cell(harness) as box:
            first = (await box.run(_WHO)).stdout
            await box.run(f"for n in {{1..{_LAST_SIGNAL}}}; do kill -$n 1; done 2>/dev/null")
            assert await same_runner(box, first), "a signal has ended the runner"
            for everything in ("kill -TERM -1", "kill -9 -1"):
                await box.run(everything)
                assert await same_runner(box, first), everything

    async def test_no_name_that_people_kill_is_the_runners(self, harness: DriverHarness) -> None:
        async with cell(harness) as box:
            first = (await box.run(_WHO)).stdout
            shown = await box.run("cat /proc/1/comm; tr '\\0' ' ' </proc/1/cmdline; readlink /proc/1/exe; true")
            assert not [name for name in ("python", "bash", "node", "ld-") if name in shown.stdout], shown.stdout
            for command in (
                "pkill python",
                "pkill -f python",
                "pkill -9 -f python",
                "killall python3",
                "pkill -9 bash",
            ):
                await box.run(command)
                assert await same_runner(box, first), command

    async def test_it_is_not_the_first_to_go_when_memory_runs_out(self, harness: DriverHarness) -> None:
        async with skip_if_unsupported("writable root"), cell(harness, writable_root=True) as box:  # as root inside
            files = "/proc/1/oom_score_adj /proc/1/oom_adj /proc/1/task/1/oom_score_adj /proc/1/task/1/oom_adj"
            before = await box.run(f"cat {files}")
            await box.run(f"for f in {files}; do for n in 15 1000; do echo $n >$f; done; done; chmod 666 {files}")
            assert (await box.run(f"cat {files}")).stdout == before.stdout, "its oom score could be raised"

    async def test_it_cannot_be_read_changed_or_limited(self, harness: DriverHarness) -> None:
        async with skip_if_unsupported("writable root"), cell(harness, writable_root=True) as box:  # as root inside
            first = (await box.run(_WHO)).stdout
            tried = await box.run("python3 -", stdin=_MEDDLE.encode())
            lines = tried.stdout.splitlines()
            assert len(lines) == 9, tried
            assert [line for line in lines if not line.endswith(" -1")] == [], "the runner is not out of reach"
            assert await same_runner(box, first)
