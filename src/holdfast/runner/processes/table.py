"""The table of background programs, and the calls of the protocol on them."""

from __future__ import annotations

import os

from holdfast.protocol import fields
from holdfast.protocol.frames import Header
from holdfast.protocol.messages import CUT, MAX_NOTICE_BYTES, MOST_PIECES, STDERR
from holdfast.runner.lean import Callable, signals
from holdfast.runner.line.dial import Dialer
from holdfast.runner.loop import Loop
from holdfast.runner.output import OutputFeed
from holdfast.runner.processes.process import Process, StartRequest
from holdfast.runner.refused import Refused, Reply, explain, refuse

KEEP_ENDED = 100
KEEP_BYTES = 32 << 20
MAX_RUNNING = 128
TERMINAL_TYPE = "xterm-256color"


class ProcessTable:
    """Background programs by id. Ended ones stay until there are too many, or their output is too large."""

    def __init__(self, loop: Loop, dialer: Dialer, shell: list[str], env: dict[str, str], home: str) -> None:
        self._loop = loop
        self._dialer = dialer
        self._shell = shell
        self._env = env
        self._home = home
        self._by_id: dict[str, Process] = {}
        self.calls = {
            "proc.start": self._start,
            "proc.list": self._list,
            "proc.get": self._get,
            "proc.read": self._read,
            "proc.attach": self._attach,
            "proc.input": self._input,
            "proc.signal": self._signal,
            "proc.resize": self._resize,
            "proc.remove": self._remove,
            "proc.tell": self._tell,
        }

    def _find(self, header: Header) -> Process:
        process = self._by_id.get(fields.text(header, "process_id"))
        if process is None:
            raise Refused("process_not_found", f"no process {header['process_id']} in this session, or it was long ago")
        return process

    def _start(self, header: Header, _body: bytes, reply: Reply) -> None:
        """Start a program. A repeated call with the same id does not start it again."""
        process_id = fields.text(header, "process_id")
        known = self._by_id.get(process_id)
        if known is not None:
            reply(known.describe())
            return
        if len([one for one in self._by_id.values() if one.running]) >= MAX_RUNNING:
            raise Refused("conflict", f"{MAX_RUNNING} processes are running already; end some, or use the shell's `&`")
        self._check_user(fields.optional_text(header, "user"))
        argv, label = self._argv(header)
        request = StartRequest(
            argv, self._environment(header), self._cwd(header), _size(header.get("size")), bool(header.get("input"))
        )
        told_of_cuts = str(header.get("told_of_cuts") or "")

        def started(errno: int) -> None:
            if errno:
                del self._by_id[process_id]
                error = explain(OSError(errno, os.strerror(errno)), argv[0])
                refuse(reply, error.code, error.message)
            else:
                reply(process.describe())

        process = Process(self._loop, process_id, label, request, fields.integer(header, "limit"), started)
        process.told_of_cuts = told_of_cuts
        process.takes_group_along = bool(header.get("whole_group"))
        self._by_id[process_id] = process
        self._forget_old()

    def tell_of_cut(self) -> None:
        """Write the notice ``CUT`` into the output of agents whose models were cut off. Only the runner knows at which
        point of the output that was."""
        for process in self._by_id.values():
            if process.told_of_cuts and process.running:
                process.output.add(STDERR, CUT)

    def _tell(self, header: Header, body: bytes, reply: Reply) -> None:
        """Write a notice of the daemon into the output of the processes with one tag."""
        tag = fields.text(header, "tag")
        if len(body) > MAX_NOTICE_BYTES:
            raise ValueError(f"a word has at most {MAX_NOTICE_BYTES} bytes")
        for process in self._by_id.values():
            if process.told_of_cuts == tag and process.running:
                process.output.add(STDERR, body)
        reply({})

    def _argv(self, header: Header) -> tuple[list[str], str]:
        line = fields.optional_text(header, "cmd")
        if line is not None:
            if not self._shell:
                raise Refused("shell_unavailable", "the image has no bash; give argv instead of cmd")
            return [*self._shell, "-c", line], line
        argv = header.get("argv")
        if argv is None:  # a terminal without a program: it gets an interactive shell
            if not self._shell:
                raise Refused("shell_unavailable", "the image has no bash; name a program to start")
            return [*self._shell, "-i"], "bash"
        if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
            raise TypeError("argv must be a list of texts")
        return argv, " ".join(argv)

    def _check_user(self, user: str | None) -> None:
        """Refuse another user: neither the runner nor a program that it starts has the right to become one."""
        own = self._env.get("USER", "")
        if user is not None and user not in (own, str(os.getuid())):
            raise Refused("bad_input", f"user: everything in this sandbox runs as {own or os.getuid()}")

    def _environment(self, header: Header) -> dict[str, str]:
        base = {**self._env, "TERM": TERMINAL_TYPE} if header.get("size") else self._env
        return {**base, **fields.texts(header, "env")}

    def _cwd(self, header: Header) -> str:
        cwd = fields.optional_text(header, "cwd") or self._home
        if not os.path.isdir(cwd):
            raise Refused("bad_input", f"cwd: {cwd} is no directory in this sandbox")
        return cwd

    def _list(self, _header: Header, _body: bytes, reply: Reply) -> None:
        reply({"processes": [process.describe() for process in self._by_id.values()]})

    def _get(self, header: Header, _body: bytes, reply: Reply) -> None:
        """Describe a process; with ``wait_ms``, only when it has ended or that time is over."""
        process = self._find(header)
        seconds = fields.integer(header, "wait_ms") / 1000
        if not process.running or seconds <= 0:
            reply(process.describe())
            return

        def answer() -> None:
            timer.cancel()
            process.stop_waiting(answer)
            reply(process.describe())

        timer = self._loop.after(seconds, answer)
        process.when_ended(answer)

    def _read(self, header: Header, _body: bytes, reply: Reply) -> None:
        """Read output from a position on, as pieces of one stream each."""
        process = self._find(header)
        ring = process.output.ring
        cursor = ring.cursor(fields.integer(header, "offset"))
        limit = fields.integer(header, "limit")
        first = max(cursor.position, ring.start)
        pieces: list[list[int]] = []
        data = bytearray()
        while len(data) < limit and len(pieces) < MOST_PIECES:
            stream, piece = ring.read(cursor, limit - len(data))
            if not piece:
                break
            pieces.append([stream, len(piece)])
            data += piece
        reply({"offset": first, "pieces": pieces, **process.describe()}, bytes(data))

    def _attach(self, header: Header, _body: bytes, reply: Reply) -> None:
        process = self._find(header)
        connection = self._dialer.connect_stream(fields.text(header, "stream"))
        offset = fields.integer(header, "offset")
        self._dialer.entrust(OutputFeed(self._loop, connection, process.output, offset, _taker(process)))
        reply(process.describe())

    def _input(self, header: Header, body: bytes, reply: Reply) -> None:
        """Write input. The answer comes when the program's pipe has taken it, so a fast client has to wait. A repeated
        call with the same ``write_id`` is written once."""
        process = self._find(header)
        if process.input is None:
            raise Refused("conflict", f"process {process.process_id} was started without stdin")

        def written(taken: bool) -> None:
            if taken and header.get("eof"):
                process.close_input()

        def done(taken: bool) -> None:
            if taken:
                reply({})
            else:
                refuse(reply, "conflict", f"process {process.process_id} does not read its input any more")

        process.input.write_once(fields.optional_text(header, "write_id"), body, written, done)

    def _signal(self, header: Header, _body: bytes, reply: Reply) -> None:
        process = self._find(header)
        process.signal(_signal_number(fields.text(header, "signal")))
        reply({})

    def _resize(self, header: Header, _body: bytes, reply: Reply) -> None:
        process, size = self._find(header), _size(header.get("size"))
        if not process.has_terminal or size is None:
            raise Refused("conflict", f"process {process.process_id} has no terminal")
        process.resize(*size)
        reply({})

    def _remove(self, header: Header, _body: bytes, reply: Reply) -> None:
        process = self._find(header)
        process.signal(signals.SIGKILL)

        def forget() -> None:
            if self._by_id.pop(process.process_id, None) is not None:
                process.discard()
            reply({})

        process.when_ended(forget)

    def _forget_old(self) -> None:
        ended = [process for process in self._by_id.values() if not process.running]
        held = sum([process.output.ring.held for process in ended])
        for process in ended:
            if len(ended) <= KEEP_ENDED and held <= KEEP_BYTES:
                return
            del self._by_id[process.process_id]
            ended = ended[1:]
            held -= process.output.ring.held
            process.discard()


def _size(size: object) -> tuple[int, int] | None:
    if size is None:
        return None
    if not isinstance(size, list) or len(size) != 2 or not all(isinstance(n, int) and 0 < n < 10000 for n in size):
        raise TypeError("size must be rows and columns")
    return size[0], size[1]


def _signal_number(name: str) -> int:
    number = getattr(signals, name, None)
    if not name.startswith("SIG") or name.startswith("SIG_") or not isinstance(number, int):
        raise Refused("bad_input", f"signal: there is no {name}")
    return int(number)


def _taker(process: Process) -> Callable[[Header, bytes, Callable[[], None]], bool]:
    """Return a function for what a follower sends: input, its end, and the size of its window."""

    def take(header: Header, body: bytes, on_room: Callable[[], None]) -> bool:
        size = _size(header.get("resize"))
        if size is not None:
            process.resize(*size)
        if process.input is None:
            return True
        if body:
            process.input.write(body, lambda _taken: on_room())
        if header.get("eof"):
            process.close_input()
        return not process.input.is_full  # if it is, one of its writes is still to come back and makes room

    return take
