"""Running a program of the host, with a deadline, and with its words kept for the error message."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TypeVar

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
        """The last thing it said, on one line."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return lines[-1][:400] if lines else f"exit status {self.status}"


async def run(
    *argv: str, timeout: float, env: Mapping[str, str] | None = None, output: IO[bytes] | None = None
) -> Outcome:
    """Run to the end. What it says is kept, or goes to ``output``: a file that may outlive it.

    Raises ``RuntimeUnavailable`` if there is no such program, ``DriverTransient`` on timeout.

    When cancelled, the program and its children are killed before the cancellation goes on.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output or asyncio.subprocess.PIPE,
            stderr=output or asyncio.subprocess.PIPE,
            start_new_session=True,
            env=dict(env) if env is not None else None,
        )
    except FileNotFoundError:
        raise RuntimeUnavailable(f"{argv[0]} is not installed") from None
    except OSError as error:
        raise DriverTransient(f"cannot start {argv[0]}: {error.strerror}") from error
    try:
        async with asyncio.timeout(timeout):
            stdout, stderr = await process.communicate()
    except TimeoutError:
        raise DriverTransient(f"{' '.join(argv)} did not end within {timeout:.0f} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    said = [(text or b"").decode(errors="replace") for text in (stdout, stderr)]
    return Outcome(argv, process.returncode or 0, *said)


async def uninterrupted(work: Coroutine[object, object, T]) -> T:
    """Await ``work`` to its end, also when cancelled meanwhile; the cancellation then goes on.

    For what must not stop half-way and is short: a runtime that is killed while it starts a container leaves pieces.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
