"""What the kernel counts per user, or has for all: one sandbox that takes all of it leaves the others, and the host,
theirs."""

import asyncio
import contextlib
import fcntl
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from holdfast.drivers.conformance.harness import (
    LIMITS,
    DriverHarness,
    SandboxUnderTest,
    need,
    need_ability,
    need_shell,
    sandboxes,
    write,
)

# Takes, or only tries, a number of each; tells how many it got. Runs inside and on the host.
_PROGRAM = """
import ctypes, fcntl, itertools, json, os, select, signal, sys, tempfile
most = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)

class Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("flags", "maxmsg", "msgsize", "curmsgs", "a", "b", "c", "d")]

watchers = []
def instance():
    made = libc.inotify_init()
    if made < 0:
        return False
    watchers.append(made)
    return True

scratch = tempfile.TemporaryDirectory(dir="/dev/shm")
def watch_each():
    "Each watcher may watch the same files, and all of it is counted."
    for number in itertools.count():
        name = f"{scratch.name}/{number}".encode()
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o600))
        for watcher in watchers:
            yield libc.inotify_add_watch(watcher, name, 2) >= 0

watches = watch_each()
def watch():
    return next(watches)

def signals():
    return libc.sigqueue(os.getpid(), signal.SIGRTMIN, None) == 0

queues = 0
def queue():
    global queues
    queues += 1
    name = f"/{os.getpid()}-{queues}".encode()
    attributes = Attributes(0, 10, 8192, 0)
    done = libc.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, ctypes.byref(attributes)) >= 0
    if len(sys.argv) == 2:
        libc.mq_unlink(name)
    return done

kept = []
def pipe():
    kept.append(os.pipe())
    return fcntl.fcntl(kept[-1][0], 1031, 1 << 20) >= 1 << 20

def terminal():
    kept.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
    return True

def file():
    kept.append(os.open("/dev/null", os.O_RDONLY))
    return True

def epoll_each():
    ends = [os.pipe()[0] for _ in range(256)]
    while True:
        kept.append(select.epoll())
        for end in ends:
            kept[-1].register(end)
            yield True

epolls = epoll_each()
def epoll():
    return next(epolls)

def key():
    number = {"x86_64": 248, "aarch64": 217, "riscv64": 217}[os.uname().machine]
    name = f"holdfast-{len(kept)}".encode()
    kept.append(name)
    return libc.syscall(number, b"user", name, b"x", 1, -2) >= 0  # in the process's own keyring

def gets(take):
    try:
        return take()
    except OSError:
        return False

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
got = {}
takers = {
    "instances": instance, "watches": watch, "signals": signals, "queues": queue, "pipes": pipe,
    "terminals": terminal, "epoll": epoll, "keys": key, "files": file,
}
for name, take in takers.items():
    got[name] = 0
    while got[name] < most[name] and gets(take):
        got[name] += 1
print(json.dumps(got), flush=True)
if len(sys.argv) > 2:
    signal.pause()
"""
_NEVER = 10_000_000
"""More than anybody gets: whoever has this many has met no end."""
_SOME = {
    "instances": 20,
    "watches": 1000,
    "signals": 1000,
    "queues": 5,
    "pipes": 20,
    "terminals": 5,
    "epoll": 1000,
    "keys": 5,
    "files": 1000,
}
_MANY = 1000
"""Enough where there is no end to be met."""
_REFUSED = {"keys": 0}
"""What no sandbox may take any of."""

# Opens files in more and more processes, and keeps them, until the kernel ends one of them, or makes no more.
_FILES = """
import os, signal
counts = {}
dead = 0
while not dead:
    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError:
        break
    if child == 0:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")
        count = 0
        try:
            while True:
                os.open("/dev/null", os.O_RDONLY)
                count += 1
        except OSError:
            os.write(writer, str(count).encode())
        while True:
            signal.pause()
    os.close(writer)
    counts[child] = int(os.read(reader, 100) or 0)
    os.close(reader)
    dead, _status = os.waitpid(-1, os.WNOHANG)
counts.pop(dead, None)
print(sum(counts.values()), flush=True)
signal.pause()
"""
_EPOLL = Path("/proc/sys/fs/epoll/max_user_watches")
_EPOLL_MOST = 1 << 16
_FILE_BYTES = 256
_FEW_MB = 64
"""Of memory: the fewer, the sooner it is full."""
_SECONDS = 120


class CountsConformance:
    """For drivers that promise it."""

    async def test_one_sandbox_takes_nothing_from_the_others(self, harness: DriverHarness) -> None:
        await self._need(harness)
        with _few_epoll_watches() as few:
            before = await asyncio.to_thread(_on_host)
            async with sandboxes(harness, 2) as (greedy, other):
                need((await greedy.run("python3 -c 'import ctypes'")).exit_code == 0, "the image has no python3")
                fresh = await self._take_some(other)
                ends = set(_SOME) - ({"epoll"} if not few else set())
                if greedy.driver.capabilities.memory:  # a kernel of its own, which takes all this from its own memory
                    ends = set()
                else:
                    assert fresh == _SOME | _REFUSED, fresh
                taken = await self._take_all(greedy, {name: _NEVER if name in ends else _MANY for name in _SOME})
                assert {name for name, count in taken.items() if not count} == _REFUSED.keys(), taken
                endless = [name for name in ends if taken[name] >= _NEVER]
                assert not endless, f"no end to what one can take of {endless}: {taken}"
                left = await self._take_some(other)
                assert left == fresh, f"one took {taken}; the other got {left}, and {fresh} before"
                host = await asyncio.to_thread(_on_host)
                assert host == before, f"one took {taken}; the host got {host}, and {before} before"
                assert host | {"keys": _SOME["keys"]} == _SOME, f"the host is short of its own: {host}"

    async def test_one_sandbox_cannot_open_all_files_of_the_kernel(self, harness: DriverHarness) -> None:
        """What all files of a sandbox take is its own memory, of which it has an end; the kernel must allow more."""
        await self._need(harness)
        most = (_FEW_MB << 20) // _FILE_BYTES
        need(_free_files() > 2 * most, "fs.file-max is so low that one sandbox may reach it: see `holdfast doctor`")
        async with sandboxes(harness, 2, limits=replace(LIMITS, memory_mb=_FEW_MB)) as (greedy, other):
            need(greedy.driver.capabilities.memory_limit, "the memory of sandboxes is not limited here")
            need(not greedy.driver.capabilities.memory, "files of gVisor's kernel are not the host's")
            need((await greedy.run("python3 -c 'import ctypes'")).exit_code == 0, "the image has no python3")
            total = int(await self._start(greedy, _FILES))
            assert most // 8 < total < 2 * most, f"{total} files, which are not what a sandbox can hold"
            left = await self._take_some(other)
            assert left == _SOME | _REFUSED, f"one has {total} files; the other got {left}"
            host = await asyncio.to_thread(_on_host)
            assert host["files"] == _SOME["files"], f"one has {total} files; the host got {host}"

    async def _need(self, harness: DriverHarness) -> None:
        need_shell(harness)
        driver = await harness.make_driver()
        await driver.close()
        need_ability(driver, "private_counts")

    async def _take_some(self, box: SandboxUnderTest) -> dict[str, int]:
        await write(box, "/workspace/take.py", _PROGRAM.encode())
        told = await box.run(f"python3 take.py '{json.dumps(_SOME)}'")
        assert told.exit_code == 0, told
        found: dict[str, int] = json.loads(told.stdout)
        return found

    async def _take_all(self, box: SandboxUnderTest, wanted: dict[str, int]) -> dict[str, int]:
        found: dict[str, int] = json.loads(await self._start(box, _PROGRAM, f"'{json.dumps(wanted)}' stay"))
        return found

    async def _start(self, box: SandboxUnderTest, program: str, arguments: str = "") -> str:
        """Its first line. It stays."""
        await write(box, "/workspace/greedy.py", program.encode())
        start = f"said=/dev/shm/said; mkfifo $said; setsid python3 greedy.py {arguments} > $said 2>&1 &"
        told = await box.run(f"{start} head -n 1 $said", timeout_ms=1000 * _SECONDS)
        assert told.stdout.strip(), told
        return told.stdout


@contextlib.contextmanager
def _few_epoll_watches() -> Iterator[bool]:
    """So few that a sandbox reaches their end before that of its memory; False where nobody may set that."""
    with _EPOLL.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # another run of this test must not take our number for the machine's
        before = _EPOLL.read_text()
        try:
            _EPOLL.write_text(f"{min(int(before), _EPOLL_MOST)}\n")
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            _EPOLL.write_text(before)


def _free_files() -> int:
    used, _unused, most = map(int, Path("/proc/sys/fs/file-nr").read_text().split())
    return most - used


def _on_host() -> dict[str, int]:
    command = [sys.executable, "-c", _PROGRAM, json.dumps(_SOME)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, int] = json.loads(done.stdout)
    return found
