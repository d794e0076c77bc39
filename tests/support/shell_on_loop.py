"""A shell with a real bash and a real loop, in the test's own process."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.runner.__main__ import find_bash
from holdfast.runner.loop import Loop
from holdfast.runner.private_dir import repair
from holdfast.runner.shell.execs import Exec
from holdfast.runner.shell.shell import Shell

PATIENCE_SECONDS = 20.0
LOOK_SECONDS = 0.01


class ShellOnLoop:
    """One shell, and the loop that it needs to be turned by somebody."""

    def __init__(self, home: Path) -> None:
        self.loop = Loop()
        self.home = home
        self.directory = home / "run"
        self.directory.mkdir()
        env = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        self.shell = Shell(self.loop, "main", find_bash(""), env, str(home), str(self.directory), self.make_order)
        self._count = 0

    def make_order(self) -> None:
        repair(str(self.directory), self.shell.paths())

    def submit(self, cmd: str, *, timeout: float = 10.0, **options: object) -> Exec:
        self._count += 1
        wanted = {"env": {}, "limit": 1 << 20, "timeout_ms": int(timeout * 1000), **options}
        job = Exec(f"e{self._count}", cmd.encode(), b"", wanted)
        self.shell.submit(job)
        return job

    def run(self, cmd: str, *, timeout: float = 10.0, **options: object) -> Exec:
        job = self.submit(cmd, timeout=timeout, **options)
        self.until(lambda: job.done, cmd)
        return job

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Turn the loop until ``condition`` holds."""
        begun = time.monotonic()
        while not condition():
            assert time.monotonic() - begun < PATIENCE_SECONDS, f"waited in vain: {what}"
            look = self.loop.after(LOOK_SECONDS, lambda: None)
            self.loop.run_once()
            look.cancel()

    def wait(self, seconds: float) -> None:
        """Turn the loop for so long: time is part of the case."""
        over = time.monotonic() + seconds
        self.until(lambda: time.monotonic() > over, "time passes")

    def close(self) -> None:
        self.shell.kill()
        self.until(lambda: self.shell._bash is None, "bash is gone")
        self.loop.forget()
        os.close(self.loop._wake_read)
        os.close(self.loop._wake_write)

    def settle(self) -> None:
        self.until(lambda: self.shell.settled, "the shell settles")


def output(job: Exec) -> str:
    return job.output.ring.content().decode()
