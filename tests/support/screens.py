"""A real terminal for the command line: a window of tmux with one program in it."""

import secrets
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from support.daemons.daemon import DaemonProcess
from support.waiting import wait_for

HOLDFAST = Path(sys.executable).parent / "holdfast"


class Screen:
    def __init__(self, daemon: DaemonProcess, *words: str, folder: Path | None = None, **environment: str) -> None:
        self._socket = f"holdfast-test-{secrets.token_hex(4)}"
        environment |= {"HOLDFAST_URL": daemon.url, "HOLDFAST_API_KEY": daemon.key}
        line = shlex.join([*(f"{name}={value}" for name, value in environment.items()), str(HOLDFAST), *words])
        # The window stays when the program has ended, so that its last words and its exit code can be read.
        program = f"env {line}; code=$?; echo; echo ended with $code; sleep 1000"
        where = ("-c", str(folder)) if folder else ()
        self._tmux("new-session", "-d", "-x", "100", "-y", "30", *where, program)

    def _tmux(self, *words: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._socket, *words], check=True, capture_output=True, text=True, timeout=20, input=stdin
        )
        return done.stdout

    def type(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def paste(self, text: str) -> None:
        """As a terminal does it for a program that has asked to be told of pastes."""
        self._tmux("load-buffer", "-", stdin=text)
        self._tmux("paste-buffer", "-p")

    def text(self) -> str:
        return self._tmux("capture-pane", "-p", "-J")  # with wrapped lines joined

    def wait_for(self, wanted: str) -> None:
        self.wait_until(lambda text: wanted in text, repr(wanted))

    def wait_until(self, right: Callable[[str], bool], what: str) -> None:
        try:
            wait_for(lambda: right(self.text()), f"{what} on the screen")
        except AssertionError as error:
            raise AssertionError(f"{error}; there is:\n{self.text()}") from None

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def exit_code(self) -> int:
        self.wait_for("ended with ")
        return int(self.text().split("ended with ")[1].split()[0])

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self._socket, "kill-server"], check=False, capture_output=True)
