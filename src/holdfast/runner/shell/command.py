"""One command on its way through the shell: what its pipes carry, and the shell's report at the end."""

from __future__ import annotations

import os
import select
import time

from holdfast.protocol.messages import STDERR, STDOUT
from holdfast.runner.lean import Callable
from holdfast.runner.loop import HANG_UP, Loop, Timer
from holdfast.runner.shell import bash_text, end_hook, machine
from holdfast.runner.shell.execs import Exec
from holdfast.runner.shell.interleave import Held
from holdfast.runner.shell.last_known import LastKnown
from holdfast.runner.shell.pipes import Pipes, WriteOrder, read

CHUNK = 1 << 18
STATE_LIMIT = 16 << 20
LINE_BYTES = 3000
PATIENCE_SECONDS = 0.005
LOOK_SECONDS = 0.05
LOOKS = 3
"""How often to look again, while a command writes to both streams, before what is certain of their order goes out."""


class Command:
    """One exec and the pipes that it has for its time. Raises OSError when it cannot be prepared."""

    def __init__(
        self,
        loop: Loop,
        order: WriteOrder,
        pipes: Pipes,
        job: Exec,
        attempt: int,
        known: LastKnown,
        on_report: Callable[[Command], None],
    ) -> None:
        self._loop = loop
        self._order = order
        self.pipes = pipes
        self.job = job
        self.attempt = attempt
        """How many shells have been given this exec, with this one."""
        self.phase = machine.GIVEN
        self.report = machine.EXPECTED
        self.token = os.urandom(8).hex()
        self.started = time.monotonic()
        self.asked_at = 0.0
        self.status: int | None = None
        self.cwd: str | None = None
        self.dump: bytes | None = None
        """The state of the shell after the command, as bash wrote it."""
        self.words_after = ""
        self._on_report = on_report
        self._record = bytearray()
        self._incoming = bytearray()
        self._patience: Timer | None = None
        self._held = Held()
        self._looks = 0
        self._look_timer: Timer | None = None
        self._mark = self.token.encode() + b"\0"
        try:
            pipes.take_up(job.cmd + b"\n", self._on_result, self._on_state, self._on_output)
            self.line = self._compose(known)
        except OSError:
            pipes.close(outputs=True)
            raise

    def _compose(self, known: LastKnown) -> str:
        """Write what bash needs besides the command, and return what to say to it: a line, or how to source a long one.

        The first words see to it that the state is told if this command ends the shell, whatever it and those before do
        with EXIT traps.
        """
        job, state, status = self.job, known.state, known.status_to_recall
        if status:
            self.pipes.add_file("status", f"\\builtin return {status}\n".encode())
        stdin = self.pipes.add_file("in", job.stdin) if job.stdin else "/dev/null"
        first = "" if known.has_end_hook else f"{end_hook.keep(known.directory)}; "
        shadowed = state is not None and (state.has_debug_trap or state.has_function("trap"))
        if end_hook.needs_function(job.cmd) and not shadowed:
            first += f"{end_hook.define(known.directory)}; "
            self.words_after = f"{end_hook.UNDEFINE}; "
        line = bash_text.command_line(
            self.pipes.directory,
            self.token,
            stdin,
            job.env,
            job.cwd,
            known.cwd,
            state,
            recall=bool(status),
            first=first,
            after=self.words_after,
        )
        if len(line) <= LINE_BYTES:
            return line
        return f"\\. {self.pipes.add_file('line', line.encode('utf-8', 'surrogateescape'))}\n"

    # -- its phases --------------------------------------------------------------------------------------------------

    def _happen(self, event: str) -> None:
        self.phase = machine.following(machine.COMMAND, self.phase, event)

    def begun(self) -> bool:
        """Say whether bash has ever opened the command's output, which it does just before the first word runs."""
        if self.phase in machine.MAY_BEGIN and self.pipes.begun():
            self._happen(machine.BEGIN)
        return self.phase not in machine.NOT_BEGUN

    def call_off(self) -> None:
        """Note that the command must end now. If it has not begun, it never will."""
        if not self.begun():
            self.pipes.take_back()
            self.begun()  # in between, perhaps
        self._happen(machine.CALL_OFF)

    def end(self) -> None:
        """Note that bash has told a status. The first bash that has never opened the output has missed the command."""
        if self.phase in machine.OPEN:
            missed = not self.begun() and self.phase == machine.GIVEN and self.attempt == 1
            self._happen(machine.MISS if missed else machine.END)

    def lose(self) -> None:
        """Note that bash has ended."""
        self.begun()
        self._happen(machine.LOSE)

    # -- output ------------------------------------------------------------------------------------------------------

    def _on_output(self) -> None:
        data = (self._take(STDOUT), self._take(STDERR))
        if self.phase != machine.OVER:
            self._keep(data)
            if self.job.output.is_ahead():
                self.pipes.pause_outputs()
                self.job.output.wait_for_room(self.pipes.resume_outputs)

    def _take(self, stream: int) -> bytes:
        fd = self.pipes.outputs.get(stream, -1)
        return (read(fd, CHUNK) or b"") if fd >= 0 else b""

    def _keep(self, data: tuple[bytes, bytes]) -> None:
        """Add to the output what was read of both streams, or hold it until their order is known."""
        if self.phase in machine.MAY_BEGIN and (data[0] or data[1]):
            self._happen(machine.BEGIN)
        if self._held.size > CHUNK:
            self._release_told()
        self._held.add(data, self._order.runs())
        if self._held.is_clear:
            self._release(self._held.release())
        elif self._look_timer is None:
            self._look_later(0)

    def _look_later(self, looks: int) -> None:
        self._looks = looks
        self._look_timer = self._loop.after(LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        """Release everything if nothing more has come since, or after a while what is certain."""
        self._look_timer = None
        if self.phase == machine.OVER:
            return
        if self._looks >= LOOKS:
            self._release_told()
        before = self._held.size
        self._held.add((self._take(STDOUT), self._take(STDERR)), self._order.runs())
        if self._held.size == before:
            self._release(self._held.release())
        else:
            self._look_later(self._looks + 1)

    def _release_told(self) -> None:
        """Release what was told of since it was read; and if that is nothing, everything."""
        self._held.add((b"", b""), self._order.runs())
        self._release(self._held.release(told_only=True) or self._held.release())
        self._looks = 0

    def _release(self, pieces: list[tuple[int, bytes]]) -> None:
        if self._look_timer is not None and not self._held.size:
            self._look_timer.cancel()
            self._look_timer = None
        for stream, piece in pieces:
            self.job.output.add(stream, piece)

    def drain(self, event: str) -> None:
        """Take what is in the pipes now, at the end. What comes later is from the background and belongs to no one."""
        for _ in range(64):  # a pipe holds 64 KB unless somebody made it larger; a flood in the background never ends
            data = (self._take(STDOUT), self._take(STDERR))
            if not data[0] and not data[1]:
                break
            self._keep(data)
        self._held.add((b"", b""), self._order.runs())
        self._release(self._held.release())
        self._happen(event)
        self.pipes.resume_outputs()

    # -- the shell's report ------------------------------------------------------------------------------------------

    def _on_result(self) -> None:
        data = read(self.pipes.result, CHUNK)
        if data and len(self._record) <= STATE_LIMIT:
            self._record += data
            if self._patience is None:
                self._patience = self._loop.after(PATIENCE_SECONDS, self._listen_to_state)
            if self._parse_record(bytes(self._record)):
                self._on_report(self)

    def _on_state(self, events: int) -> None:
        while data := read(self.pipes.state, CHUNK):
            if len(self._incoming) <= STATE_LIMIT:
                self._incoming += data
        if events & HANG_UP:
            if self.report not in (machine.EXPECTED, machine.WHOLE):
                self.pipes.hush_state()
            self._close_report()

    def _listen_to_state(self) -> None:
        """Read the report as it comes from now on: a large state does not fit into the pipe."""
        if self.report != machine.EXPECTED or self.pipes.state < 0:
            return
        if _is_hung_up(self.pipes.state):  # as it was left: bash has not come to it yet
            self._patience = self._loop.after(PATIENCE_SECONDS, self._listen_to_state)
        else:
            self._happen_to_report(machine.STREAM)
            self.pipes.listen_to_state()

    def _close_report(self) -> None:
        self._happen_to_report(machine.CLOSE)
        if self._patience is not None:
            self._patience.cancel()
        dump, self._incoming = bytes(self._incoming), bytearray()
        parts = self._behind_mark(dump)
        if len(parts) == 3 and len(dump) <= STATE_LIMIT and parts[2].count(b"\0") == bash_text.STATE_SECTIONS:
            self.dump = parts[2]
            if self.status is None:
                self._parse_record(dump)
        self._on_report(self)

    def _behind_mark(self, data: bytes) -> list[bytes]:
        """Status, directory and the rest, behind a mark that nobody knows: a shadowed ``builtin`` writes anything."""
        return data.rpartition(self._mark)[2].split(b"\0", 2) if self._mark in data else []

    def _parse_record(self, data: bytes) -> bool:
        parts = self._behind_mark(data)
        if len(parts) < 3 or not parts[0].isdigit() or len(parts[0]) > 3:
            return False
        self.status = int(parts[0])
        self.cwd = os.fsdecode(parts[1])
        return True

    def may(self, event: str) -> bool:
        """Say whether ``event`` may happen to the report now."""
        return (self.report, event) in machine.REPORT_OF_COMMAND

    def _happen_to_report(self, event: str) -> None:
        self.report = machine.following(machine.REPORT_OF_COMMAND, self.report, event)

    def ask(self, event: str) -> None:
        """Note that bash is asked for its report once more; ``event`` says how."""
        self._happen_to_report(event)
        self.asked_at = time.monotonic()

    def request_for_report(self, cwd: str) -> str:
        """What to say to bash in order to get the report; ``cwd`` is the directory that the shell must return to."""
        place = self.pipes.directory, self.token
        if self.report == machine.ASKED_PAST:
            return bash_text.report_past_shadows(*place)
        return bash_text.report_again(*place, cwd if self.job.cwd else None, self.words_after)

    def listen_again(self) -> None:
        """Wait for another report, on a new pipe: the old one has been hung up."""
        self._incoming = bytearray()
        self.pipes.renew_state()

    def give_back_pipes(self) -> bool:
        """Give the pipes back for another command; True if it may have them: all went its usual way, and nobody uses
        them any more."""
        told = self.dump is not None and self.status is not None
        return told and self.report == machine.WHOLE and self.pipes.lay_down()


def _is_hung_up(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)
    return bool(poll.poll(0))
