"""What is known of a shell: the directory and the state from which another bash can go on."""

from __future__ import annotations

import os

from holdfast.runner.shell import end_hook
from holdfast.runner.shell.bash_text import State


class LastKnown:
    """The directory, state and exit status of one shell. Bash reports them after each command."""

    def __init__(self, cwd: str, directory: str) -> None:
        self.cwd = cwd
        self.state: State | None = None
        self.status = 0
        self.has_end_hook = False
        """Whether the bash that runs now has our EXIT trap."""
        self.directory = directory
        self._before_end: tuple[str, State | None] | None = None

    @property
    def status_to_recall(self) -> int:
        """What ``$?`` must be for the next command; 0 where any other would end the shell."""
        return 0 if self.state is None or self.state.ends_on_failure else self.status

    def take_report(self, dump: bytes, *, builtin_is_hidden: bool) -> bool:
        """Take the state that bash reported; True if a DEBUG trap is new in it, which has written into the report."""
        had_debug_trap = self.state is not None and self.state.has_debug_trap
        dump, self.has_end_hook = end_hook.split(dump, self.directory)
        self.state = State(dump, builtin_is_hidden=builtin_is_hidden)
        self._before_end = None
        return self.state.has_debug_trap and not had_debug_trap

    def take_last_words(self, *, begun: bool, cwd_is_borrowed: bool) -> None:
        """Take the state in which a command ended the shell, if it was told.

        Of a shell that ended by itself everything is known already. A directory that was only for this command is not
        the shell's.
        """
        found = end_hook.take(self.directory)
        if found is None or not begun:
            return
        cwd, dump = found
        self._before_end = self.cwd, self.state
        self.state = State(end_hook.split(dump, self.directory)[0], builtin_is_hidden=False)
        if not cwd_is_borrowed and cwd.startswith("/") and os.path.isdir(cwd):
            self.cwd = cwd

    def step_back(self, *, forget: bool) -> None:
        """Note that a bash with this state ended before it began on a command.

        A state that was told at a shell's end may be what ends the next one: then the one before that is tried first.
        After that, ``forget`` drops the state.
        """
        if self._before_end is not None:
            self.cwd, self.state = self._before_end
            self._before_end = None
        elif forget:
            self.state = None

    def learn_directory(self, reported: str | None, pid: int) -> None:
        """Take the directory that bash reports, if it is there; PWD is only a variable, and ``cd`` only a word."""
        where = f"/proc/{pid}/cwd"
        try:
            actual = os.readlink(where)
        except OSError:
            self.cwd = reported or self.cwd
            return
        self.cwd = actual
        if reported is None or reported == actual or not reported.startswith("/"):
            return
        try:
            if os.path.samestat(os.stat(reported), os.stat(where)):
                self.cwd = reported  # by way of a link
        except OSError:
            return  # the directory was removed, or is out of reach
