"""A command that the agent runs in the shell: its output as it comes, its end, and all that it started killed."""

from __future__ import annotations

import codecs
import os
import time

from holdfast.agents.scripted.inside.script import OutputPiece

KILL, STOP = 9, 19
CHUNK = 1 << 14
DRAIN_READS = 16  # at the end: what is in the pipe, and not what a child in the background goes on to write
KILL_SECONDS = 5.0
SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
BUNDLE = "/.holdfast"


class ScriptedCommand:
    """A command, which runs as soon as this object is made."""

    def __init__(self, text: str) -> None:
        self._pipe, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(theirs, True)
        self._closed = False
        self._decode = codecs.getincrementaldecoder("utf-8")("replace")
        self.pid = os.fork()
        if self.pid == 0:
            _become(text, theirs)
        os.close(theirs)

    @property
    def pipe(self) -> int | None:
        """A descriptor that is readable when there is output; None when no more will come, though it may still run."""
        return None if self._closed else self._pipe

    def more(self) -> OutputPiece | None:
        """Return the output that is there now; None if there is none."""
        data = self._read()
        if data:
            return OutputPiece(self._decode.decode(data))
        ended, status = os.waitpid(self.pid, os.WNOHANG)
        if not ended:
            return None
        rest = b"".join([self._read() for _ in range(DRAIN_READS)])  # written since we looked at the pipe
        os.close(self._pipe)
        code = os.waitstatus_to_exitcode(status)
        return OutputPiece(self._decode.decode(rest, True), code if code >= 0 else 128 - code)

    def _read(self) -> bytes:
        try:
            data = os.read(self._pipe, CHUNK)
        except BlockingIOError:
            return b""
        self._closed = self._closed or not data
        return data

    def kill(self) -> None:
        """Kill the command and all that it has started."""
        found: set[int] = set()
        while new := set(_descendants(self.pid)) - found:  # who stands still starts nobody else
            for pid in new:
                _signal(pid, STOP)
            found |= new
        for pid in found:
            _signal(pid, KILL)
        deadline = time.monotonic() + KILL_SECONDS
        while not os.waitpid(self.pid, os.WNOHANG)[0] and time.monotonic() < deadline:
            time.sleep(0.001)
        os.close(self._pipe)


def _become(text: str, output: int) -> None:
    try:
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        argv = _shell()
        os.execv(argv[0], [*argv, "-c", text])  # noqa: S606 - this is what was asked for
    finally:
        os._exit(127)


def _shell() -> list[str]:
    for path in SHELLS:
        if os.access(path, os.X_OK):
            return [path]
    for name in os.listdir(f"{BUNDLE}/lib"):
        if name.startswith("ld") and ".so" in name:
            return [f"{BUNDLE}/lib/{name}", "--library-path", f"{BUNDLE}/lib", f"{BUNDLE}/bin/bash"]
    raise FileNotFoundError("no shell")


def _descendants(pid: int) -> list[int]:
    """Return the process and all its descendants, parents first."""
    found = [pid]
    for one in found:
        try:
            with open(f"/proc/{one}/task/{one}/children", "rb") as file:
                found += [int(child) for child in file.read().split()]
        except OSError:
            continue
    return found


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
