"""The runner of the fake driver: tasks in this process that dial the host's socket and speak the real protocol.

Its files are a dictionary, and its shell knows a tiny language: commands separated by ``;``, one of

    echo WORDS…   ($NAME is looked up)      exit N      sleep SECONDS      cat  (stdin back)      true      false
"""

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from holdfast.drivers.base import SandboxSpec
from holdfast.drivers.fake.file_tasks import FakeFileTasks
from holdfast.errors import (
    BadInput,
    Conflict,
    DiskFull,
    ExecNotFound,
    FileMissing,
    HoldfastError,
    IdempotencyMismatch,
    ProtocolError,
    SandboxLost,
)
from holdfast.protocol import frames
from holdfast.protocol.messages import INLINE_FILE_BYTES, STDERR, STDOUT, VERSION, pack_segments

HOME = "/workspace"
_REDIAL_SECONDS = 0.01
_CHUNK = 1 << 16
_TIMED_OUT = 124

FakeReply = tuple[frames.Header, bytes]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(slots=True)
class _Exec:
    """One command: the request, so that another with the same id is refused, and the work on it."""

    request: tuple[bytes, object, object, object]
    result: "asyncio.Task[FakeReply]"


class FakeRunner:
    """Runs from the moment it is made until ``kill``, or until the host replaces it, refuses it or shuts it down."""

    def __init__(self, spec: SandboxSpec, files: dict[str, bytes] | None = None) -> None:
        self.frozen = self.full = False
        self.going = asyncio.Event()
        """Not set while the sandbox is paused; calls in that time are answered later."""
        self.going.set()
        self.asleep = False
        """In a checkpoint: it does not dial."""
        self.files: dict[str, bytes] = {} if files is None else files
        self.listening: dict[str, int] = {}
        self._file_work = FakeFileTasks(self.files, self.keep)
        self._spec = spec
        self._env = {"HOME": HOME, "SANDBOX_ID": spec.session_id, **spec.env}
        self._execs: dict[str, _Exec] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writer: asyncio.StreamWriter | None = None
        self._main = asyncio.get_running_loop().create_task(self._run())

    @property
    def alive(self) -> bool:
        return not self._main.done()

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Call back when the runner has ended; at once if it has ended already."""
        self._main.add_done_callback(lambda _main: callback())

    def cut(self) -> None:
        """Drop the connection. ``_run`` dials again."""
        if self._writer is not None:
            self._writer.close()

    async def kill(self) -> None:
        """End at once: the connection drops and every command is gone."""
        self._main.cancel()
        await asyncio.gather(self._main, *self._end_work(), return_exceptions=True)

    def _end_work(self) -> list[asyncio.Task[None] | asyncio.Task[FakeReply]]:
        work: list[asyncio.Task[None] | asyncio.Task[FakeReply]] = [
            *self._tasks,
            *(job.result for job in self._execs.values()),
        ]
        for task in work:
            task.cancel()
        return work

    # -- the link --------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._dial_for_ever()
        finally:
            self._end_work()

    async def _dial_for_ever(self) -> None:
        while True:
            if self.asleep:
                await asyncio.sleep(_REDIAL_SECONDS)
                continue
            try:
                reader, self._writer = await self._connect("hello", self._hello())
            except OSError:
                await asyncio.sleep(_REDIAL_SECONDS)
                continue
            try:
                if await self._serve_connection(reader, self._writer) == "end":
                    return
            except (OSError, ProtocolError):
                await asyncio.sleep(_REDIAL_SECONDS)
            finally:
                self._writer.close()

    def _hello(self) -> frames.Header:
        return {"capabilities": ["exec", "files", "listen"], "running": self._running(), "home": HOME}

    def _running(self) -> list[str]:
        return [exec_id for exec_id, job in self._execs.items() if not job.result.done()]

    async def _connect(self, op: str, fields: frames.Header) -> Streams:
        """Connect to the host by the directory's descriptor, because a socket's path may have only 107 bytes."""
        directory = os.open(self._spec.link_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/host.sock")
        finally:
            os.close(directory)
        hello = {"op": op, "v": VERSION, "session": self._spec.session_id, "token": self._spec.token}
        writer.write(frames.encode({**hello, **fields}))
        return reader, writer

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Take calls until the connection is cut or the host says "end"."""
        decoder = frames.Decoder()
        while data := await reader.read(_CHUNK):
            await self.going.wait()
            for header, body in decoder.feed(data):
                op = header.get("op")
                if op in ("replaced", "refused"):
                    return "end"
                if "id" not in header or self.frozen:
                    continue
                if op == "shutdown":
                    writer.write(frames.encode({"id": header["id"]}))
                    return "end"
                if op == "quiesce" and not self._running():
                    writer.write(frames.encode({"id": header["id"]}))
                    return "cut"
                self._spawn(self._answer(header, body, writer))
        return "cut"

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, call: frames.Header, body: bytes, writer: asyncio.StreamWriter) -> None:
        try:
            header, reply_body = await self._call(call, body)
        except (KeyError, ValueError) as error:
            header, reply_body = {"error": {"code": "protocol_error", "message": f"{call.get('op')}: {error!r}"}}, b""
        except HoldfastError as error:
            header, reply_body = {"error": {"code": error.code, "message": error.message}}, b""
        await self.going.wait()
        if not writer.is_closing() and not self.frozen:
            writer.write(frames.encode({**header, "id": call["id"]}, reply_body))

    async def _call(self, call: frames.Header, body: bytes) -> FakeReply:
        path = str(call.get("path"))
        match call.get("op"):
            case "ping":
                return {}, b""
            case "env":
                if self._execs:
                    raise Conflict("the environment of a session is set before its first command")
                extra = call.get("env")
                self._env.update(extra if isinstance(extra, dict) else {})
            case "exec":
                return await asyncio.shield(self._exec(call, body).result)
            case "exec.get":
                job = self._execs.get(str(call["exec_id"]))
                if job is None:
                    raise ExecNotFound(f"no command {call['exec_id']} in this session")
                return await asyncio.shield(job.result)
            case "shells.save":
                return {"shells": []}, b""
            case "shells.load":
                return {}, b""
            case "quiesce":
                raise Conflict("a command is running in this session")
            case "fs.read":
                return self._read(path, _number(call["limit"]))
            case "fs.write":
                self.keep(path, body)
            case "fs.open":
                self._spawn(self._work_on_files(str(call["stream"])))
            case "ports":
                return {"ports": []}, b""
            case "listen":
                self.listening[str(call["name"])] = _number(call["port"])
            case op:
                raise ProtocolError(f"this runner does not know the op {op!r}")
        return {}, b""

    async def call_out(self, name: str) -> Streams:
        """Open a connection as a program in the sandbox does that connects to the listener of this name."""
        return await self._connect("stream", {"listen": name, "stream": os.urandom(8).hex()})

    # -- files -----------------------------------------------------------------------------------------------------

    def keep(self, path: str, content: bytes) -> None:
        """Write a file, unless the disk is full."""
        if self.full:
            raise DiskFull(f"{path}: No space left on device")
        self.files[path] = content

    def _content(self, path: str) -> bytes:
        if path not in self.files:
            raise FileMissing(f"{path}: No such file or directory")
        return self.files[path]

    def _read(self, path: str, limit: int) -> FakeReply:
        content = self._content(path)
        if min(len(content), limit) > INLINE_FILE_BYTES:
            return {"stream": True, "size": len(content)}, b""
        return {"size": len(content), "truncated": len(content) > limit}, content[:limit]

    async def _work_on_files(self, stream: str) -> None:
        with contextlib.suppress(OSError, SandboxLost):
            reader, writer = await self._connect("stream", {"stream": stream})
            try:
                await self._file_work.serve(reader, writer)
            finally:
                writer.close()

    # -- commands --------------------------------------------------------------------------------------------------

    def _exec(self, call: frames.Header, body: bytes) -> _Exec:
        """Return the command with this id: a new one, or the one that there is already."""
        exec_id = str(call["exec_id"])
        request = (body, call.get("env"), call.get("cwd"), call.get("shell"))
        job = self._execs.get(exec_id)
        if job is None:
            work = self._run_command(call, body, exec_id)
            job = self._execs[exec_id] = _Exec(request, asyncio.get_running_loop().create_task(work))
        elif job.request != request:
            raise IdempotencyMismatch("this Idempotency-Key was used for another command")
        return job

    async def _run_command(self, call: frames.Header, body: bytes, exec_id: str) -> FakeReply:
        cut = _number(call["cmd_bytes"])
        env, extra, started = dict(self._env), call.get("env"), time.monotonic()
        if isinstance(extra, dict):
            env.update(extra)
        output: list[tuple[int, bytes]] = []
        timed_out = False
        try:
            async with asyncio.timeout(_number(call["timeout_ms"]) / 1000):
                exit_code = await interpret(body[:cut].decode(), body[cut:], env, output)
        except TimeoutError:
            exit_code, timed_out = _TIMED_OUT, True
        segments = pack_segments([(stream, len(data)) for stream, data in output])
        result: frames.Header = {
            "exec_id": exec_id,
            "exit_code": exit_code,
            "cwd": HOME,
            "timed_out": timed_out,
            "shell_restarted": False,
            "duration_ms": int((time.monotonic() - started) * 1000),
            "truncated": False,
            "segment_bytes": len(segments),
        }
        return result, segments + b"".join(data for _, data in output)


async def interpret(text: str, stdin: bytes, env: dict[str, str], output: list[tuple[int, bytes]]) -> int:
    """Run a text in the tiny language, add its output to ``output``, and return the exit code."""
    status = 0
    for command in filter(None, (part.split() for part in text.split(";"))):
        match command:
            case ["echo", *words]:
                line = re.sub(r"\$(\w+)", lambda name: env.get(name[1], ""), " ".join(words))
                output.append((STDOUT, f"{line}\n".encode()))
                status = 0
            case ["exit", code]:
                return int(code) & 255
            case ["sleep", seconds]:
                await asyncio.sleep(float(seconds))
                status = 0
            case ["cat"]:
                output.append((STDOUT, stdin))
                status = 0
            case ["true"] | ["false"]:
                status = int(command == ["false"])
            case [name, *_]:
                output.append((STDERR, f"{name}: command not found\n".encode()))
                status = 127
    return status


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise BadInput(f"{value!r} is no number")
    return value
