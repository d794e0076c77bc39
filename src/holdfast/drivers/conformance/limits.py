"""Using up what a sandbox may have. Only the limits that a driver's capabilities promise are tested."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict

from holdfast.drivers.conformance.harness import (
    LIMITS,
    DriverHarness,
    SandboxUnderTest,
    need,
    need_shell,
    sandbox,
    skip_if_unsupported,
)
from holdfast.records.limits import Limits

# Sends what nobody reads, up to so many bytes; tells how many of them the kernel has kept.
_UNREAD = """
import socket, sys
kept, most, piece = [], int(sys.argv[1]), bytes(32 << 10)

def tcp():
    server = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(server.getsockname())
    sender.settimeout(0.1)
    kept.extend((server, sender, server.accept()[0]))
    sent = 0
    try:
        while sent < most:
            sent += sender.send(piece)
    except OSError:
        pass
    return sent

def udp():
    receiver, sender = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    receiver.setblocking(False)
    sender.connect(receiver.getsockname())
    kept.append(receiver)
    for _ in range(8):
        sender.send(piece)
    return 0

def arrived(receiver):
    count = 0
    try:
        while True:
            count += len(receiver.recv(len(piece)))
    except OSError:
        return count

total = 0
for _ in range(3000 if sys.argv[2] == "udp" else 60):
    if total >= most:
        break
    taken = (udp if sys.argv[2] == "udp" else tcp)()
    total += taken
    if sys.argv[2] == "tcp" and taken == 0:
        break
print(sum(map(arrived, kept)) if sys.argv[2] == "udp" else total)
"""
PIDS = 64
MEMORY_MB = 96
DISK_MB = 32


@asynccontextmanager
async def limited(
    harness: DriverHarness, limit: str, *, writable_root: bool = False, **limits: float
) -> AsyncIterator[SandboxUnderTest]:
    """A sandbox with these limits, if the driver promises to hold ``limit``."""
    need_shell(harness)
    wanted = Limits(**{**asdict(LIMITS), **limits})
    async with sandbox(harness, needs=limit, limits=wanted, writable_root=writable_root) as box:
        yield box


async def assert_still_answers(box: SandboxUnderTest) -> None:
    result = await box.run("echo alive")
    assert (result.exit_code, result.stdout) == (0, "alive\n"), f"the sandbox does not work any more: {result}"


class LimitsConformance:
    """Bombs go off inside, and the sandbox still answers."""

    async def test_processes_are_limited(self, harness: DriverHarness) -> None:
        async with limited(harness, "pids_limit", pids=PIDS) as box:
            result = await box.run("while :; do sleep 1000 & n=$((n+1)); echo $n; done", timeout_ms=4000)
            started = [int(line) for line in result.stdout.split()]
            assert started, f"not one process could be started: {result}"
            assert PIDS // 2 <= max(started) <= PIDS, f"{max(started)} processes with a limit of {PIDS}"
            await assert_still_answers(box)

    async def test_a_fork_bomb_is_contained(self, harness: DriverHarness) -> None:
        async with limited(harness, "pids_limit", pids=PIDS) as box:
            await box.run("bomb() { bomb | bomb & }; bomb; sleep 1000", timeout_ms=2000)
            await assert_still_answers(box)

    async def test_memory_is_limited(self, harness: DriverHarness) -> None:
        async with limited(harness, "memory_limit", memory_mb=MEMORY_MB) as box:
            result = await box.run(f"head -c {MEMORY_MB * 4}M /dev/zero | tail -c {MEMORY_MB * 4}M | wc -c")
            assert result.stdout.strip() != str(MEMORY_MB * 4 << 20), f"it had four times its memory: {result}"
            await assert_still_answers(box)

    async def test_memory_used_by_files_is_limited(self, harness: DriverHarness) -> None:
        async with limited(harness, "memory_limit") as box:
            places = ("/dev/shm", "/run")  # noqa: S108 - inside the sandbox
            for place in places:
                result = await box.run(f"head -c {LIMITS.memory_mb * 2}M /dev/zero > {place}/fill")
                assert result.exit_code != 0, f"twice the memory fitted into {place}"
            await box.run(f"rm -f {' '.join(f'{place}/fill' for place in places)}")
            await assert_still_answers(box)

    async def test_memory_held_by_sockets_is_limited(self, harness: DriverHarness) -> None:
        async with limited(harness, "memory_limit", memory_mb=MEMORY_MB) as box:
            need((await box.run("python3 -c 1")).exit_code == 0, "the image has no python3")
            for kind in ("tcp", "udp"):
                result = await box.run(f"python3 - {MEMORY_MB * 4 << 20} {kind}", stdin=_UNREAD.encode())
                kept = int(result.stdout or 0)
                assert kept or result.exit_code, f"the test could send nothing: {result}"
                assert kept < MEMORY_MB << 20, f"{kind} sockets kept {kept >> 20} MB: {result}"
                await assert_still_answers(box)

    async def test_disk_is_limited_everywhere_in_a_writable_root(self, harness: DriverHarness) -> None:
        """Also where a runtime has mounted something of its own."""
        box_with_root = limited(harness, "disk_limit", disk_mb=DISK_MB, writable_root=True)
        async with skip_if_unsupported("writable root"), box_with_root as box:
            for path in ("/fill", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/usr/fill", "/root/fill"):
                result = await box.run(f"head -c {DISK_MB * 4}M /dev/zero > {path}")
                assert result.exit_code != 0, f"four times the disk fitted into {path}"
                await box.run(f"> {path}")
            await assert_still_answers(box)

    async def test_disk_is_limited(self, harness: DriverHarness) -> None:
        async with limited(harness, "disk_limit", disk_mb=DISK_MB) as box:
            for place in ("$HOME", "/tmp"):  # noqa: S108 - inside the sandbox
                result = await box.run(f"head -c {DISK_MB * 4}M /dev/zero > {place}/fill")
                assert result.exit_code != 0, f"four times the disk fitted into {place}"
                assert "No space left" in result.stderr or "quota" in result.stderr, f"{place}: {result}"
                await assert_still_answers(box)
                removed = await box.run(f"rm {place}/fill && echo works > {place}/small")
                assert removed.exit_code == 0, f"{place} is of no use any more: {removed}"
