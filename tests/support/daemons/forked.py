"""Daemons that begin as a fork of a process which has imported everything: a start costs a tenth of the processor time.

One such process per test process, started with the first daemon, and gone with it. Its own input and output are the
line to it: a JSON list per request, ``["start", config, log, folder, environment]`` or ``["status", pid]``, and one
JSON value back. It is the daemons' parent, so only it can say how they have ended.
"""

import atexit
import contextlib
import functools
import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn


class Forked:
    """A daemon, with what a ``Popen`` has of it."""

    def __init__(self, config: Path, log: Path, environment: Mapping[str, str]) -> None:
        self.pid: int = _source().ask("start", str(config), str(log), str(Path.cwd()), dict(environment))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = _source().ask("status", self.pid)
        return self.returncode

    def wait(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            try:
                select.select([descriptor], [], [], timeout)
            finally:
                os.close(descriptor)
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("the daemon", timeout)
            time.sleep(0.01)  # it has ended, and its parent is about to be told
        return status

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Source:
    """The process that daemons are forked from."""

    def __init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        atexit.register(self.close)

    def ask(self, *request: object) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            answer: int = json.loads(self._process.stdout.readline())
        return answer

    def spent(self) -> float:
        """Return the seconds of the processor that it has used, and those of its daemons that have ended."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


@functools.cache
def _source() -> _Source:
    return _Source()


def spent() -> float:
    """Return the seconds of the processor that forked daemons have cost so far."""
    return _source().spent() if _source.cache_info().currsize else 0.0


def _serve() -> None:
    import holdfast.daemon.__main__  # noqa: F401 - what all of this is about

    gc.freeze()
    for line in sys.stdin:
        match json.loads(line):
            case ["start", str(config), str(log), str(folder), dict(environment)]:
                answer: int | None = os.fork() or _become_daemon(config, log, folder, environment)
            case ["status", int(pid)]:
                ended, status = os.waitpid(pid, os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if ended else None
        print(json.dumps(answer), flush=True)


def _become_daemon(config: str, log: str, folder: str, environment: Mapping[str, str]) -> NoReturn:
    status = 1
    try:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        told = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(told, 1)
        os.dup2(told, 2)
        os.close(told)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        sys.argv[1:] = [config]
        from holdfast.daemon.__main__ import run

        status = run(config)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
