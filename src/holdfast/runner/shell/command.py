"""One command on its way through the shell: what its pipes carry, and the shell's report at the end."""

from __future__ import annotations

import os
import select
import time

from holdfast.protocol.messages import STDERR, STDOUT
from holdfast.runner.loop import HANG_UP, Loop
from holdfast.runner.shell import bash_text
from holdfast.runner.shell.interleave import Held
from holdfast.runner.shell.pipes import Pipes, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.runner.loop import Timer
    from holdfast.runner.shell.execs import Exec
    from holdfast.runner.shell.write_order import WriteOrder

CHUNK = 1 << 18
STATE_LIMIT = 16 << 20
LINE_BYTES = 3000
PATIENCE_SECONDS = 0.005
LOOK_SECONDS = 0.05
LOOKS = 4
"""How often to look again, while a command writes to both streams, before their order is taken to be known."""


class Command:
    """One exec and the pipes that it has for its time. Raises OSError when it cannot be prepared."""

    def __init__(
        self,
        loop: Loop,
        order: WriteOrder,
        pipes: Pipes,
        job: Exec,
        last_status: int,
        on_report: Callable[[Command], None],
    ) -> None:
        self._loop = loop
        self._order = order
        self.pipes = pipes
        self.job = job
        self.token = os.urandom(8).hex()
        self.started = time.monotonic()
        self.finished = False
        self.status: int | None = None
        self.cwd: str | None = None
        self.state: bytes | None = None
        self._begun = False
        self.reported = False
        self.asked_again = False
        self.asked_at = 0.0
        self.asked_past_shadows = False
        self.never_ran = False
        self._on_report = on_report
        self._record = bytearray()
        self._dump = bytearray()
        self._patience: Timer | None = None
        self._was_patient = True
        self._held = Held()
        self._looks = 0
        self._look_timer: Timer | None = None
        self._mark = self.token.encode() + b"\0"
        self.stdin = "/dev/null"
        self.words_after = ""
        try:
            pipes.take_up(job.cmd + b"\n", self._on_result, self._on_state, self._on_output)
            if last_status:
                pipes.add_file("status", f"\\builtin return {last_status}\n".encode())
            if job.stdin:
                self.stdin = pipes.add_file("in", job.stdin)
        except OSError:
            pipes.close(outputs=True)
            raise

    # -- output ------------------------------------------------------------------------------------------------------

    def _on_output(self) -> None:
        data = (self._take(STDOUT), self._take(STDERR))
        if not self.finished:
            self._keep(data)
            if self.job.output.is_ahead():
                self.pipes.pause_outputs()
                self.job.output.wait_for_room(self.pipes.resume_outputs)

    def _take(self, stream: int) -> bytes:
        fd = self.pipes.outputs.get(stream, -1)
        return (read(fd, CHUNK) or b"") if fd >= 0 else b""

    def _keep(self, data: tuple[bytes, bytes]) -> None:
        """Add to the output what was read of both streams, or hold it until their order is known."""
        if data[0] or data[1]:
            self._begun = True
        self._held.add(data, self._order.runs())
        if self._held.is_clear or self._held.size > CHUNK:
            self._release()
        elif self._look_timer is None:
            self._looks = 0
            self._look_timer = self._loop.after(LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        """Nothing more has come since, or it has been long enough."""
        self._look_timer = None
        if self.finished:
            return
        self._looks += 1
        before = self._held.size
        self._held.add((self._take(STDOUT), self._take(STDERR)), self._order.runs())
        if self._held.size == before or self._looks >= LOOKS:
            self._release()
        else:
            self._look_timer = self._loop.after(LOOK_SECONDS, self._look_again)

    def _release(self) -> None:
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        for stream, piece in self._held.release():
            self.job.output.add(stream, piece)

    def give(self, line: str) -> str:
        """What to say to bash for ``line``: itself, or how to source it from a file when it is too long for a pipe."""
        if len(line) <= LINE_BYTES:
            return line
        return f"\\. {self.pipes.add_file('line', line.encode('utf-8', 'surrogateescape'))}\n"

    def begun(self) -> bool:
        """Whether the shell has ever opened the command's output, which it does just before the first word runs.

        A command that has not begun may be given to another shell; one that has, never.
        """
        self._begun = self._begun or self.pipes.begun()
        return self._begun

    def drain(self) -> None:
        """Take what is in the pipes now. What comes later is from the background and belongs to no one."""
        for _ in range(64):  # a pipe holds 64 KB unless somebody made it larger; a flood in the background never ends
            data = (self._take(STDOUT), self._take(STDERR))
            if not data[0] and not data[1]:
                break
            self._keep(data)
        self._held.add((b"", b""), self._order.runs())
        self._release()
        self.finished = True
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
            if len(self._dump) <= STATE_LIMIT:
                self._dump += data
        if events & HANG_UP:
            if self.asked_again or not self._was_patient:
                self.pipes.hush_state()
            self._finish_dump()

    def _listen_to_state(self) -> None:
        """From now on read as it comes: a large state does not fit into the pipe."""
        if self.reported or self.pipes.state < 0:
            return
        if _is_hung_up(self.pipes.state):  # as it was left: bash has not come to it yet
            self._patience = self._loop.after(PATIENCE_SECONDS, self._listen_to_state)
        else:
            self._was_patient = False
            self.pipes.listen_to_state()

    def _finish_dump(self) -> None:
        self.reported = True
        if self._patience is not None:
            self._patience.cancel()
        dump, self._dump = bytes(self._dump), bytearray()
        start = dump.rfind(self._mark)
        parts = dump[start + len(self._mark) :].split(b"\0", 2) if start >= 0 else []
        if len(parts) == 3 and len(dump) <= STATE_LIMIT and parts[2].count(b"\0") == bash_text.STATE_SECTIONS:
            self.state = parts[2]
            if self.status is None:
                self._parse_record(dump)
        self._on_report(self)

    def _parse_record(self, data: bytes) -> bool:
        """Exit status and directory, behind the mark that nobody else knows: a shadowed ``builtin`` writes anything."""
        start = data.rfind(self._mark)
        parts = data[start + len(self._mark) :].split(b"\0", 2) if start >= 0 else []
        if len(parts) < 3 or not parts[0].isdigit() or len(parts[0]) > 3:
            return False
        self.status = int(parts[0])
        self.cwd = os.fsdecode(parts[1])
        return True

    def listen_again(self) -> None:
        """Wait for another report, on a new pipe: the old one has been hung up."""
        self.reported = False
        self.asked_again = True
        self.asked_at = time.monotonic()
        self._dump = bytearray()
        self.pipes.renew_state()

    # -- the end -----------------------------------------------------------------------------------------------------

    def give_back_pipes(self) -> bool:
        """For another command; True if it may have them: all went its usual way, and nobody is at them any more."""
        usual = self.state is not None and self.status is not None and self._was_patient and not self.asked_again
        return usual and self.finished and self.pipes.lay_down()

    def close(self, *, outputs: bool) -> None:
        """Let go of everything but, if so asked, the output pipes that background children still write to."""
        self.pipes.close(outputs=outputs)


def _is_hung_up(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)
    return bool(poll.poll(0))
