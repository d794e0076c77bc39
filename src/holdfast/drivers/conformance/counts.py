"""What the kernel counts per user: one sandbox that takes all of it leaves the others, and the host, theirs."""

import asyncio
import json
import subprocess
import sys

from holdfast.drivers.conformance.harness import Harness, Sandbox, eventually, need, need_shell, sandboxes, write

# Takes, or only tries, a number of each; tells how many it got. Runs inside and on the host.
_PROGRAM = """
import ctypes, fcntl, json, os, resource, signal, sys, time
most = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)

class Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("flags", "maxmsg", "msgsize", "curmsgs", "a", "b", "c", "d")]

def watch():
    return libc.inotify_init() >= 0

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
    try:
        kept.append(os.pipe())
        return fcntl.fcntl(kept[-1][0], 1031, 1 << 20) >= 1 << 20
    except OSError:
        return False

def terminal():
    try:
        kept.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
        return True
    except OSError:
        return False

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
got = {}
takers = {"watches": watch, "signals": signals, "queues": queue, "pipes": pipe, "terminals": terminal}
for name, take in takers.items():
    got[name] = 0
    while got[name] < most[name] and take():
        got[name] += 1
print(json.dumps(got), flush=True)
if len(sys.argv) > 2:
    signal.pause()
"""
_ALL = {"watches": 5000, "signals": 200_000, "queues": 400, "pipes": 900, "terminals": 5000}
_SOME = {"watches": 20, "signals": 1000, "queues": 5, "pipes": 20, "terminals": 5}


class CountsConformance:
    """For drivers that promise it."""

    async def test_one_sandbox_takes_nothing_from_the_others(self, harness: Harness) -> None:
        need_shell(harness)
        driver = await harness.make_driver()
        need(driver.capabilities.private_counts, f"sandboxes of the {driver.name} driver share what is counted here")
        await driver.close()
        async with sandboxes(harness, 2) as (greedy, other):
            need((await greedy.run("python3 -c 'import ctypes'")).exit_code == 0, "the image has no python3")
            for box in (greedy, other):
                await write(box, "/workspace/take.py", _PROGRAM.encode())
            taken = await self._take_all(greedy)
            assert all(taken.values()), f"the test could take nothing: {taken}"
            assert taken["terminals"] < _ALL["terminals"], f"no end to what one can take: {taken}"
            left = await other.run(f"python3 take.py '{json.dumps(_SOME)}'")
            assert json.loads(left.stdout) == _SOME, f"one took {taken}; the other got {left.stdout}"
            host = await asyncio.to_thread(_on_host)
            assert host == _SOME, f"one took {taken}; the host got {host}"

    async def _take_all(self, box: Sandbox) -> dict[str, int]:
        await box.run(f"setsid python3 take.py '{json.dumps(_ALL)}' stay > taken 2>&1 &")

        async def has_taken() -> bool:
            return (await box.run("cat taken")).stdout.endswith("}\n")

        await eventually(has_taken, "one has taken all it can")
        found: dict[str, int] = json.loads((await box.run("cat taken")).stdout)
        return found


def _on_host() -> dict[str, int]:
    command = [sys.executable, "-c", _PROGRAM, json.dumps(_SOME)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, int] = json.loads(done.stdout)
    return found
