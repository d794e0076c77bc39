"""Running a program of the host, with a deadline, and with its words kept for the error message."""

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, TypeVar

from holdfast.concurrency import seen
from holdfast.drivers.blocking import run_in_new_thread
from holdfast.errors import DriverTransient, RuntimeUnavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended."""

    argv: Sequence[str]
    status: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.status == 0

    def complaint(self) -> str:
        """Return the last thing that the program said, on one line."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return lines[-1][:400] if lines else f"exit status {self.status}"


async def run(
    *argv: str,
    timeout: float,
    env: Mapping[str, str] | None = None,
    output: IO[bytes] | None = None,
    within: Callable[[], None] | None = None,
) -> Outcome:
    """Run to the end. What it says is kept, or goes to ``output``: a file that may outlive it.

    ``within`` prepares the thread that starts it, which does nothing else: it may leave namespaces. What it raises goes
    on.

    Raises ``RuntimeUnavailable`` if there is no such program, ``DriverTransient`` on timeout.

    When cancelled, the program and its children are killed before the cancellation goes on.
    """
    started = _Started()
    # In a thread: a child that the event loop itself starts costs several times as much in a process of our size.
    call = partial(_run, argv, timeout, env, output, started)
    prepared = call if within is None else partial(run_in_new_thread, partial(_run_within, within, call))
    work = seen(asyncio.ensure_future(asyncio.to_thread(prepared)))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        started.kill()
        await asyncio.wait([work])
        raise


class _Started:
    """The process, once there is one; or the news that there should be none any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = False

    def set(self, process: "subprocess.Popen[bytes]") -> None:
        with self._lock:
            self._process = process
            if self._cancelled:
                _kill_group(process)

    def kill(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._process is not None:
                _kill_group(self._process)


def _run_within(within: Callable[[], None], call: Callable[[], Outcome]) -> Outcome:
    within()
    return call()


def _run(
    argv: Sequence[str], timeout: float, env: Mapping[str, str] | None, output: IO[bytes] | None, started: _Started
) -> Outcome:
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output or subprocess.PIPE,
            stderr=output or subprocess.PIPE,
            start_new_session=True,
            env=dict(env) if env is not None else None,
        )
    except FileNotFoundError:
        raise RuntimeUnavailable(f"{argv[0]} is not installed") from None
    except OSError as error:
        raise DriverTransient(f"cannot start {argv[0]}: {error.strerror}") from error
    started.set(process)
    with process:
        try:
            if output is not None:
                _wait(process, timeout)
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _kill_group(process)
            raise DriverTransient(f"{' '.join(argv)} did not end within {timeout:.0f} s") from None
    said = [(text or b"").decode(errors="replace") for text in (stdout, stderr)]
    return Outcome(argv, process.returncode, *said)


def _wait(process: "subprocess.Popen[bytes]", timeout: float) -> None:
    """Wait for the end of a process. Without pipes to watch, Popen itself would only look every now and then."""
    descriptor = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(timeout * 1000):
            raise subprocess.TimeoutExpired(process.args, timeout)
    finally:
        os.close(descriptor)


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def finish_despite_cancel(work: Coroutine[object, object, T]) -> T:
    """Await ``work`` to its end, also when cancelled meanwhile; the cancellation then goes on.

    For what must not stop half-way and is short: a runtime that is killed while it starts a container leaves pieces.
    """
    task = seen(asyncio.ensure_future(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
