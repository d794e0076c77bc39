"""Finds, starts and asks the scripted agent's process in a sandbox.

It uses the supervisor's parts (``home``, ``lines``, ``output``, ``end``), but not ``Supervisor`` itself, which is made
for other people's programs: that one compares configurations by their digest, has a circuit breaker for failed starts,
and finds out by a journal whether a prompt has arrived. This program has no configuration, is always there, and notes
each prompt itself. A start is named by its generation, so that two callers at once get one process. And since a request
is made in each resolve of a thread, its answer is read here without a task for each piece.
"""

import contextlib
import json
import secrets

from holdfast.agents.base import Brief, Place
from holdfast.agents.scripted import package
from holdfast.agents.supervisor.home import agent_directory, is_there, write_file
from holdfast.agents.supervisor.lines import JsonObject, Lines, lines_of
from holdfast.agents.supervisor.output import answer_within
from holdfast.errors import AgentDown, AgentFailed, AgentSessionMissing, Conflict, ProcessNotFound, ShellUnavailable
from holdfast.sessions.use.follow import Attached, Chunk
from holdfast.sessions.use.processes import ProcessRequest, ProcessView


async def find(place: Place) -> tuple[ProcessView | None, int]:
    """Find the newest process of this channel's agent, running or not, and its generation."""
    newest: ProcessView | None = None
    last = 0
    for view in await place.sandbox.processes.list(place.session_id):
        generation = package.generation_of(view.cmd, place.channel)
        if generation is not None and generation > last:
            newest, last = view, generation
    return newest, last


async def launch(place: Place, where: str, generation: int) -> ProcessView:
    """Start the process of this generation; a repeated call returns the same process."""
    archive = f"{where}/{package.program_name()}"
    if not await is_there(place, archive):
        await write_file(place, archive, package.program(), mode=0o644)
    mark = package.mark(place.channel, generation)
    home = agent_directory(where, "scripted", place.channel)
    line, brief = package.start_line(archive, home, mark), place.brief
    cwd = None if brief.workdir == Brief().workdir else brief.workdir  # the usual one is where it is anyway
    request = ProcessRequest(cmd=line, stdin=True, cwd=cwd, env=brief.environment)
    try:
        return await place.sandbox.processes.start(place.session_id, request, idempotency_key=mark)
    except ShellUnavailable as error:
        raise AgentFailed(f"the scripted agent needs bash to start: {error}") from error


async def ask(place: Place, view: ProcessView, op: str, fields: JsonObject, seconds: float) -> None:
    """Send a request and wait for its answer.

    Raises ``AgentDown`` if there is none in time; then it is unknown whether the request was carried out.
    """
    nonce = secrets.token_hex(8)
    line = json.dumps({**fields, "id": nonce, "op": op}).encode() + b"\n"
    try:
        async with answer_within(seconds, what=f" {op}"):
            answer = await _exchange(place, view, nonce, line)
    except (ProcessNotFound, Conflict) as error:
        raise AgentDown(f"the agent takes no requests: {error}; the next message starts it again") from error
    _check(op, answer)


async def _exchange(place: Place, view: ProcessView, nonce: str, line: bytes) -> JsonObject:
    processes = place.sandbox.processes
    following = processes.follow(place.session_id, view.process_id, offset=view.written)
    lines = Lines()
    async with contextlib.aclosing(following):
        async for item in following:
            if isinstance(item, Attached):
                await processes.write(place.session_id, view.process_id, line, close=False)
            elif isinstance(item, Chunk):
                async for said in lines_of(lines, item):
                    if said.message.get("re") == nonce:
                        return said.message
    raise AgentDown("the agent's process has ended; the next message starts it again")


def _check(op: str, answer: JsonObject) -> None:
    match answer:
        case {"ok": _}:
            return
        case {"error": {"code": "session_missing", "message": message}}:
            raise AgentSessionMissing(f"{message}; make a new one")
        case {"error": {"message": message}}:
            raise AgentFailed(str(message))
    raise AgentFailed(f"the agent's answer to {op} makes no sense")
