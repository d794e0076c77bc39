"""The adapter of the scripted agent: a program of our own in the sandbox that does what the prompt's text says.

It needs no model and no network, and keeps the whole contract: threads are tested with it, and a new installation is
tried out with it. The language is in ``inside/script.py``, what the program keeps on disk in ``inside/disk.py``.
"""

import asyncio
import contextlib
import hashlib
import re
import secrets
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import ClassVar
from weakref import WeakValueDictionary

from holdfast.agents.base import Abilities, Agent, AgentEvent, AgentSessionId, Cursor, PastMessage, Place, Prompt
from holdfast.agents.scripted import process
from holdfast.agents.scripted.log import ScriptedLog
from holdfast.agents.supervisor.home import read_file, root
from holdfast.agents.supervisor.lines import JsonObject, Lines, lines_of, parse
from holdfast.agents.supervisor.output import complaint, or_silence
from holdfast.agents.supervisor.supervisor import end
from holdfast.errors import AgentDown, AgentFailed, AgentSessionMissing, FileMissing
from holdfast.sessions.use.follow import Attached, Chunk
from holdfast.sessions.use.processes import ProcessView
from holdfast.vocabulary.models import channel_tag

_SESSION = re.compile(r"scr_[0-9a-f]{32}")
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_REMEMBERED_ROOTS = 10_000


@dataclass(frozen=True, slots=True)
class ScriptedTimeouts:
    """How long the agent may take, in seconds."""

    start: float = process.START_SECONDS
    health: float = 5.0
    request: float = 20.0
    quiet: float = 15.0
    """How long a turn may be silent before the agent is asked whether it lives."""


class ScriptedAgent(Agent):
    """One daemon's adapter. It can lose what it remembers (the agents' directories) and find it again."""

    name = "scripted"
    starts_ahead = True

    usual: ClassVar[ScriptedTimeouts] = ScriptedTimeouts()

    def __init__(self, timeouts: ScriptedTimeouts | None = None) -> None:
        self._timeouts = timeouts or self.usual
        self._roots: dict[str, str] = {}
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    @property
    def abilities(self) -> Abilities:
        return Abilities(steer=True, revert=True, models=("scripted-1", "scripted-2"))

    # -- the process ---------------------------------------------------------------------------------------------------

    async def start(self, place: Place) -> None:
        async with self._locks.setdefault((place.session_id, place.channel), asyncio.Lock()):
            view, generation = await process.find(place)
            if view is not None and view.running:
                try:
                    await process.ask(place, view, "ping", {}, self._timeouts.health)
                    return
                except AgentDown:
                    await end(place, view)
            view = await process.launch(place, await self._root(place), generation + 1)
            await self._wait_ready(place, view)

    async def _wait_ready(self, place: Place, view: ProcessView) -> None:
        try:
            await process.ask(place, view, "ping", {}, self._timeouts.start)
        except AgentDown as error:
            now = await place.sandbox.processes.get(place.session_id, view.process_id)
            if now.running:
                raise
            why = await complaint(place, now)
            raise AgentFailed(f"the agent ended as soon as it was started, with {now.exit_code}: {why}") from error

    async def health(self, place: Place) -> None:
        await self._ask_soon(place, "ping", {})

    async def _ask_soon(self, place: Place, op: str, fields: JsonObject) -> None:
        """Send a request with the deadline of ``health``, which also covers a runner that does not answer."""
        try:
            async with asyncio.timeout(self._timeouts.health):
                await self._ask(place, op, fields, self._timeouts.health)
        except TimeoutError:
            raise AgentDown(
                f"the agent did not answer within {self._timeouts.health:.0f} s; the next message starts it again"
            ) from None

    async def stop(self, place: Place) -> None:
        view, _ = await process.find(place)
        if view is not None and view.running:
            await end(place, view)

    async def _ask(self, place: Place, op: str, fields: JsonObject, seconds: float | None = None) -> None:
        view, _ = await process.find(place)
        if view is None or not view.running:
            raise AgentDown("the agent's process is not there; the next message starts it")
        await process.ask(place, view, op, fields, seconds or self._timeouts.request)

    async def _root(self, place: Place) -> str:
        known = self._roots.get(place.session_id)
        if known is None:
            if len(self._roots) >= _REMEMBERED_ROOTS:
                self._roots.clear()
            known = self._roots[place.session_id] = await root(place)
        return known

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def create_session(self, place: Place, history: Sequence[PastMessage] = ()) -> AgentSessionId:
        session = AgentSessionId(f"scr_{secrets.token_hex(16)}")
        said = [[one.role, one.text] for one in history]
        await self._ask(place, "create", {"session": session, "history": said})
        return session

    async def resume_session(self, place: Place, session: AgentSessionId) -> None:
        try:
            _check(session)
        except AgentSessionMissing:
            await self.health(place)  # the process comes first, as the contract has it
            raise
        await self._ask_soon(place, "resume", {"session": session})

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def prompt(self, place: Place, session: AgentSessionId, prompt: Prompt) -> None:
        _check(session)
        fields = {
            "session": session,
            "prompt": prompt.id,
            "name": _name(prompt.id),
            "text": prompt.text,
            "model": prompt.model,
            "attachments": list(prompt.attachments),
        }
        try:
            await self._ask(place, "prompt", fields)
        except AgentDown:
            await self.stop(place)  # so that it cannot accept the prompt later
            if not await self.accepted(place, session, prompt.id):
                raise

    async def accepted(self, place: Place, session: AgentSessionId, prompt_id: str) -> bool:
        _check(session)
        try:
            content = await read_file(place, f"{await self._home(place)}/sessions/{session}.jsonl")
        except FileMissing:
            raise AgentSessionMissing(f"the agent has no session {session}; make a new one") from None
        notes = map(parse, content.split(b"\n"))
        return any(note is not None and prompt_id in (note.get("prompt"), note.get("steer")) for note in notes)

    async def _home(self, place: Place) -> str:
        return f"{await self._root(place)}/scripted/{channel_tag(place.channel)}"

    async def events(
        self, place: Place, session: AgentSessionId, prompt_id: str, after: Cursor
    ) -> AsyncGenerator[AgentEvent, None]:
        if not await self.accepted(place, session, prompt_id):
            raise AgentFailed(f"the agent has had no prompt {prompt_id}")
        key = f"{session}/{_name(prompt_id)}"
        log = ScriptedLog(place, f"{await self._home(place)}/turns/{key}.log", key, after)
        while True:
            view, _ = await process.find(place)
            for told in await log.rest():
                yield told
            if log.ended:
                return
            if view is None or not view.running:
                raise AgentDown("the agent died in the middle of the turn; the next message starts it")
            async with contextlib.aclosing(self._follow(place, view, log)) as following:
                async for told in following:
                    yield told
            if log.ended:
                return

    async def _follow(self, place: Place, view: ProcessView, log: ScriptedLog) -> AsyncGenerator[AgentEvent, None]:
        """Yield what the process reports of the turn, until the turn or the process ends."""
        lines = Lines()
        output = place.sandbox.processes.follow(place.session_id, view.process_id, offset=view.written)
        async with contextlib.aclosing(or_silence(output, self._timeouts.quiet)) as items:
            async for item in items:
                if isinstance(item, ProcessView):
                    return
                if item is None:
                    await self.health(place)
                if item is None or isinstance(
                    item, Attached
                ):  # after Attached no line is missed; read what came before
                    for told in await log.rest():
                        yield told
                if isinstance(item, Chunk):
                    async for said in lines_of(lines, item):
                        for told in await log.take(said.message):
                            yield told
                if log.ended:
                    return

    async def abort(self, place: Place, session: AgentSessionId, prompt_id: str) -> None:
        _check(session)
        await self._ask(place, "abort", {"session": session, "prompt": prompt_id})

    async def answer(self, place: Place, session: AgentSessionId, question_id: str, answer: str) -> None:
        _check(session)
        await self._ask(place, "answer", {"session": session, "question": question_id, "answer": answer})

    async def steer(self, place: Place, session: AgentSessionId, prompt: Prompt) -> None:
        _check(session)
        await self._ask(place, "steer", {"session": session, "prompt": prompt.id, "text": prompt.text})

    async def revert(self, place: Place, session: AgentSessionId, prompt_id: str) -> None:
        _check(session)
        await self._ask(place, "revert", {"session": session, "prompt": prompt_id})


def _check(session: AgentSessionId) -> None:
    """Raise ``AgentSessionMissing`` if this cannot be a session's id; ids become parts of paths."""
    if not _SESSION.fullmatch(session):
        raise AgentSessionMissing(f"{session[:100]!r} is no session of the scripted agent; make a new one")


def _name(prompt_id: str) -> str:
    """A file name for any id."""
    if _SAFE.fullmatch(prompt_id):
        return prompt_id
    return f"x-{hashlib.sha256(prompt_id.encode('utf-8', 'surrogatepass')).hexdigest()}"
