"""The runner by itself: how long from its start until it has dialled home and said hello."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

from bench.daemon import BenchError
from bench.figure import Figure, Reference, Target
from bench.plan import Plan
from bench.samples import Samples
from holdfast.drivers import runtime_bundle
from holdfast.drivers.runtime_bundle import MOUNT_POINT, RuntimeBundle

NAME = "runner"
TARGET = Target(40.0)
SECONDS = 10.0


async def measure(plan: Plan) -> list[Figure]:
    """The bundle's own interpreter, on the host; a Python that does nothing is the reference."""
    count = plan.count(60, 5)
    plan.say(f"{count} x (runner, Python that does nothing)")
    return await asyncio.to_thread(_measure, count)


def _measure(count: int) -> list[Figure]:
    home = Path(tempfile.mkdtemp(prefix="hf-bench-", dir="/var/tmp"))
    ready, bare = Samples(), Samples()
    try:
        bundle = runtime_bundle.build(home / "bundle")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(home / "host.sock"))
            listener.listen()
            listener.settimeout(SECONDS)
            for _ in range(count):
                with ready.timed_ms():
                    process = _start(bundle, home)
                    _await_hello(listener)
                _end(process)
                with bare.timed_ms():
                    subprocess.run(_bare(bundle), check=True)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    reference = Reference("the same Python, doing nothing", bare)
    return [Figure(NAME, "process start → hello", "ms", ready, TARGET, reference)]


def _start(bundle: RuntimeBundle, home: Path) -> subprocess.Popen[bytes]:
    environment = {
        "HOLDFAST_SESSION": "ses_bench",
        "HOLDFAST_TOKEN": "bench",
        "HOLDFAST_SOCKET": str(home / "host.sock"),
        "HOLDFAST_RUN_DIR": str(home),
        "HOME": "/",
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
    }
    return subprocess.Popen(_on_host(bundle, bundle.runner_argv()), env=environment, start_new_session=True)


def _bare(bundle: RuntimeBundle) -> list[str]:
    argv = _on_host(bundle, bundle.runner_argv())
    return [*argv[: argv.index("-c")], "-c", "pass"]


def _on_host(bundle: RuntimeBundle, argv: list[str]) -> list[str]:
    """The command with the bundle where it is on the host; in a sandbox it is mounted elsewhere."""
    return [word.replace(MOUNT_POINT, str(bundle.path)) for word in argv]


def _await_hello(listener: socket.socket) -> None:
    try:
        connection, _ = listener.accept()
    except TimeoutError:
        raise BenchError(f"the runner did not dial within {SECONDS:.0f} s") from None
    with connection:
        connection.settimeout(SECONDS)
        if b'"hello"' not in connection.recv(1 << 16):
            raise BenchError("the runner's first words were not hello")


def _end(process: subprocess.Popen[bytes]) -> None:
    """With everything that it may have started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
