"""One bash process: how it is started, talked to, and found to have ended."""

from __future__ import annotations

import os

from holdfast.runner import linux
from holdfast.runner.lean import Callable
from holdfast.runner.loop import Loop
from holdfast.runner.processes import children


class Bash:
    """A running bash with a pipe for its input. Raises OSError when no process can be started."""

    def __init__(
        self, loop: Loop, argv: list[str], env: dict[str, str], cwd: str, on_exit: Callable[[int], None]
    ) -> None:
        self._on_exit = on_exit
        read_end, self._input = os.pipe2(os.O_CLOEXEC)
        try:
            self.pid = os.fork()
        except OSError:
            os.close(read_end)
            os.close(self._input)
            raise
        if self.pid == 0:
            _become_bash(loop, argv, env, cwd, read_end)
        self._pipe = f"pipe:[{os.fstat(read_end).st_ino}]"
        os.close(read_end)
        os.set_blocking(self._input, False)
        loop.on_exit(self.pid, self._ended)

    def say(self, text: str) -> None:
        """Write to its input. Our lines are short and fit into the pipe, which is empty when bash waits for one."""
        try:
            os.write(self._input, text.encode("utf-8", "surrogateescape"))
        except OSError:
            return  # bash is gone or stuck; its exit, or the shell's tick, is on its way

    def reads_its_input(self) -> bool:
        """Say whether its stdin is our pipe at this moment; during a command it is the command's."""
        try:
            return os.readlink(f"/proc/{self.pid}/fd/0") == self._pipe
        except OSError:
            return False

    def _ended(self, status: int) -> None:
        os.close(self._input)
        code = os.waitstatus_to_exitcode(status)
        self._on_exit(code if code >= 0 else 128 - code)


def _become_bash(loop: Loop, argv: list[str], env: dict[str, str], cwd: str, read_end: int) -> None:
    """Become bash, in the child. It never returns."""
    try:
        null = os.open(children.NULL_DEVICE, os.O_RDWR)
        children.enter(loop, [read_end, null, null])
        linux.adopt_orphans()
        for path in (env.get("HOME", "/"), cwd):
            try:
                os.chdir(path)
            except OSError:
                continue
        os.execve(argv[0], argv[1:], env)  # noqa: S606 - this is how a shell starts
    finally:
        os._exit(127)
