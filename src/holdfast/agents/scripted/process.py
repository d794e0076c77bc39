"""The scripted agent's process in a sandbox, from the host's side: found, started, asked, ended."""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Mapping

from holdfast.agents.base import Place
from holdfast.agents.scripted import package
from holdfast.errors import (
    AgentDown,
    AgentFailed,
    AgentSessionMissing,
    Conflict,
    FileMissing,
    ProcessNotFound,
    ShellUnavailable,
)
from holdfast.protocol.messages import STDOUT
from holdfast.sessions.follow import Attached, Chunk
from holdfast.sessions.processes import ProcessRequest, ProcessView

START_SECONDS = 20.0
TERM_MS = 5000
KILL_MS = 5000
_PROBE_MS = 10_000
_PROBE = 'printf %s "$HOME"'
_WORKSPACE = "/workspace"
_LINE_BYTES = 1 << 20
_COMPLAINT_BYTES = 2000

Json = Mapping[str, object]


async def root(place: Place) -> str:
    """Where agents keep their things: not among the user's own files, and where they outlive a sleep."""
    processes = place.sandbox.processes
    view = await _probed(place, "holdfast-agents-home")
    if view.exit_code != 0:  # killed, perhaps, with all that ran: only an answer counts, and the key has none any more
        view = await _probed(place, f"holdfast-agents-home-{secrets.token_hex(8)}")
    if view.exit_code != 0:
        raise AgentDown(f"the sandbox does not tell where its home is (exit code {view.exit_code}); try again")
    chunks, _ = await processes.read(place.session_id, view.process_id, offset=0, limit=4096)
    home = b"".join(chunk.data for chunk in chunks).decode(errors="surrogateescape")
    if not home.startswith("/") or home == _WORKSPACE:
        home = "/tmp"  # noqa: S108 - inside the sandbox, on its own disk
    return f"{home.rstrip('/')}/.holdfast-agents"


async def _probed(place: Place, key: str) -> ProcessView:
    """The process that tells it, ended. One that is still running has told nothing yet: that is no answer."""
    processes = place.sandbox.processes
    started = await processes.start(place.session_id, ProcessRequest(cmd=_PROBE), idempotency_key=key)
    view = await processes.get(place.session_id, started.process_id, wait_ms=_PROBE_MS)
    if view.running:
        raise AgentDown(f"the sandbox did not tell where its home is within {_PROBE_MS // 1000} s; try again")
    return view


async def find(place: Place) -> tuple[ProcessView | None, int]:
    """The newest process of this channel's agent, running or not, and its generation."""
    newest: ProcessView | None = None
    last = 0
    for view in await place.sandbox.processes.list(place.session_id):
        generation = package.generation_of(view.cmd, place.channel)
        if generation is not None and generation > last:
            newest, last = view, generation
    return newest, last


async def launch(place: Place, where: str, generation: int) -> ProcessView:
    """The process of this generation; asked for twice, it is the same."""
    archive = f"{where}/{package.program_name()}"
    await _put(place, archive)
    mark = package.mark(place.channel, generation)
    home = f"{where}/scripted/{package.channel_name(place.channel)}"
    request = ProcessRequest(cmd=package.start_line(archive, home, mark), stdin=True)
    try:
        return await place.sandbox.processes.start(place.session_id, request, idempotency_key=mark)
    except ShellUnavailable as error:
        raise AgentFailed(f"the scripted agent needs bash to start: {error}") from error


async def _put(place: Place, archive: str) -> None:
    files = place.sandbox.files
    try:
        await files.stat(place.session_id, archive, follow=False)
    except FileMissing:
        await files.upload(place.session_id, archive, _pieces(package.program()), mode=0o644)


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def end(place: Place, view: ProcessView) -> None:
    """TERM, five seconds, KILL. Returns when it has ended."""
    processes = place.sandbox.processes
    with contextlib.suppress(ProcessNotFound):
        for name, wait_ms in (("TERM", TERM_MS), ("KILL", KILL_MS)):
            await processes.signal(place.session_id, view.process_id, name)
            if not (await processes.get(place.session_id, view.process_id, wait_ms=wait_ms)).running:
                return
        raise AgentFailed("the agent's process does not end, not even by KILL; destroy the session")


async def complaint(place: Place, view: ProcessView) -> str:
    """The last that a process has written: usually why it has ended."""
    chunks, _ = await place.sandbox.processes.read(
        place.session_id, view.process_id, offset=max(view.written - _COMPLAINT_BYTES, 0), limit=_COMPLAINT_BYTES
    )
    return b"".join(chunk.data for chunk in chunks).decode(errors="replace").strip()


async def ask(place: Place, view: ProcessView, op: str, fields: Json, seconds: float) -> None:
    """A request, and its answer. ``AgentDown`` if there is none in time: then nobody knows whether it was taken up."""
    nonce = secrets.token_hex(8)
    line = json.dumps({**fields, "id": nonce, "op": op}).encode() + b"\n"
    try:
        async with asyncio.timeout(seconds):
            answer = await _exchange(place, view, nonce, line)
    except TimeoutError:
        raise AgentDown(f"the agent did not answer {op} within {seconds:.0f} s; start it again") from None
    except (ProcessNotFound, Conflict) as error:
        raise AgentDown(f"the agent takes no requests: {error}; start it again") from error
    _check(op, answer)


async def _exchange(place: Place, view: ProcessView, nonce: str, line: bytes) -> Json:
    processes = place.sandbox.processes
    following = processes.follow(place.session_id, view.process_id, offset=view.written)
    lines = Lines()
    async with contextlib.aclosing(following):
        async for item in following:
            if isinstance(item, Attached):
                await processes.write(place.session_id, view.process_id, line, close=False)
            elif isinstance(item, Chunk):
                for told in lines.feed(item):
                    if told.get("re") == nonce:
                        return told
    raise AgentDown("the agent's process has ended; start it again")


class Lines:
    """Objects out of a process's output; what is no JSON object, and what went to stderr, is skipped."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: Chunk) -> list[Json]:
        if chunk.stream != STDOUT:
            return []
        if chunk.dropped:
            self._rest = b""
        *lines, self._rest = (self._rest + chunk.data).split(b"\n")
        self._rest = self._rest[-_LINE_BYTES:]  # nothing that it says is longer: not worth our memory
        return [told for told in map(parse, lines) if told is not None]


def parse(line: bytes) -> Json | None:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def _check(op: str, answer: Json) -> None:
    match answer:
        case {"ok": _}:
            return
        case {"error": {"code": "session_missing", "message": message}}:
            raise AgentSessionMissing(f"{message}; make a new one")
        case {"error": {"message": message}}:
            raise AgentFailed(str(message))
    raise AgentFailed(f"the agent's answer to {op} makes no sense")
