"""The adapter of the scripted agent: a program of our own in the sandbox that does what the prompt's text says.

It needs no model and no network, and keeps the whole contract: threads are tested with it, and a new installation is
tried out with it. The language is in ``inside/script.py``, what the program keeps on disk in ``inside/disk.py``.
"""

import contextlib
import hashlib
import re
import secrets
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from holdfast.agents.base import Abilities, Agent, AgentEvent, ConversationId, Cursor, PastMessage, Place, Prompt
from holdfast.agents.scripted import process
from holdfast.agents.scripted.log import ScriptedLog
from holdfast.agents.supervisor.home import Roots, agent_directory, read_file
from holdfast.agents.supervisor.lines import JsonObject, parse
from holdfast.agents.supervisor.output import answer_within, complaint
from holdfast.agents.supervisor.supervisor import AgentProcess, Timeouts, end
from holdfast.agents.supervisor.turn_log import read_turn
from holdfast.concurrency import KeyedLocks
from holdfast.errors import AgentDown, AgentFailed, AgentSessionMissing, FileMissing
from holdfast.sessions.use.processes import ProcessView

_SESSION = re.compile(r"scr_[0-9a-f]{32}")
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


@dataclass(frozen=True, slots=True)
class ScriptedTimeouts(Timeouts):
    start: float = 20.0
    request: float = 20.0


class ScriptedAgent(Agent):
    """One daemon's adapter. It can lose what it remembers (the agents' directories) and find it again."""

    name = "scripted"
    starts_ahead = True

    usual: ClassVar[ScriptedTimeouts] = ScriptedTimeouts()

    def __init__(self, timeouts: ScriptedTimeouts | None = None) -> None:
        self._timeouts = timeouts or self.usual
        self._roots = Roots()
        self._locks = KeyedLocks[tuple[str, str]]()

    @property
    def abilities(self) -> Abilities:
        return Abilities(steer=True, revert=True, models=("scripted-1", "scripted-2"))

    # -- the process ---------------------------------------------------------------------------------------------------

    async def start(self, place: Place) -> None:
        async with self._locks.of((place.session_id, place.channel)):
            view, generation = await process.find(place)
            if view is not None and view.running:
                try:
                    await process.ask(place, view, "ping", {}, self._timeouts.health)
                    return
                except AgentDown:
                    await end(place, view)
            view = await process.launch(place, await self._roots.find(place), generation + 1)
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
        async with answer_within(self._timeouts.health):
            await self._ask(place, op, fields, self._timeouts.health)

    async def stop(self, place: Place) -> None:
        view, _ = await process.find(place)
        if view is not None and view.running:
            await end(place, view)

    async def _ask(self, place: Place, op: str, fields: JsonObject, seconds: float | None = None) -> None:
        view, _ = await process.find(place)
        if view is None or not view.running:
            raise AgentDown("the agent's process is not there; the next message starts it")
        await process.ask(place, view, op, fields, seconds or self._timeouts.request)

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def create_conversation(self, place: Place, history: Sequence[PastMessage] = ()) -> ConversationId:
        conversation = ConversationId(f"scr_{secrets.token_hex(16)}")
        said = [[one.role, one.text] for one in history]
        await self._ask(place, "create", {"session": conversation, "history": said})
        return conversation

    async def resume_conversation(self, place: Place, conversation: ConversationId) -> None:
        try:
            _check(conversation)
        except AgentSessionMissing:
            await self.health(place)  # the process comes first, as the contract has it
            raise
        await self._ask_soon(place, "resume", {"session": conversation})

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def prompt(self, place: Place, conversation: ConversationId, prompt: Prompt) -> None:
        _check(conversation)
        fields = {
            "session": conversation,
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
            if not await self.accepted(place, conversation, prompt.id):
                raise

    async def accepted(self, place: Place, conversation: ConversationId, prompt_id: str) -> bool:
        _check(conversation)
        try:
            content = await read_file(place, f"{await self._home(place)}/sessions/{conversation}.jsonl")
        except FileMissing:
            raise AgentSessionMissing(f"the agent has no session {conversation}; make a new one") from None
        notes = map(parse, content.split(b"\n"))
        return any(note is not None and prompt_id in (note.get("prompt"), note.get("steer")) for note in notes)

    async def _home(self, place: Place) -> str:
        return agent_directory(await self._roots.find(place), self.name, place.channel)

    async def events(
        self, place: Place, conversation: ConversationId, prompt_id: str, after: Cursor
    ) -> AsyncGenerator[AgentEvent, None]:
        if not await self.accepted(place, conversation, prompt_id):
            raise AgentFailed(f"the agent has had no prompt {prompt_id}")
        key = f"{conversation}/{_name(prompt_id)}"
        log = ScriptedLog(place, f"{await self._home(place)}/turns/{key}.log", key, after)
        reading = read_turn(log, _find, self._timeouts.quiet, lambda place, _found: self.health(place))
        async with contextlib.aclosing(reading) as events:
            async for told in events:
                yield told

    async def abort(self, place: Place, conversation: ConversationId, prompt_id: str) -> None:
        _check(conversation)
        await self._ask(place, "abort", {"session": conversation, "prompt": prompt_id})

    async def answer(self, place: Place, conversation: ConversationId, question_id: str, answer: str) -> None:
        _check(conversation)
        await self._ask(place, "answer", {"session": conversation, "question": question_id, "answer": answer})

    async def steer(self, place: Place, conversation: ConversationId, prompt: Prompt) -> None:
        _check(conversation)
        await self._ask(place, "steer", {"session": conversation, "prompt": prompt.id, "text": prompt.text})

    async def revert(self, place: Place, conversation: ConversationId, prompt_id: str) -> None:
        _check(conversation)
        await self._ask(place, "revert", {"session": conversation, "prompt": prompt_id})


async def _find(place: Place) -> AgentProcess | None:
    view, generation = await process.find(place)
    return None if view is None else AgentProcess(view, generation, "")


def _check(conversation: ConversationId) -> None:
    """Raise ``AgentSessionMissing`` if this cannot be a session's id; ids become parts of paths."""
    if not _SESSION.fullmatch(conversation):
        raise AgentSessionMissing(f"{conversation[:100]!r} is no session of the scripted agent; make a new one")


def _name(prompt_id: str) -> str:
    """Return a file name for any id."""
    if _SAFE.fullmatch(prompt_id):
        return prompt_id
    return f"x-{hashlib.sha256(prompt_id.encode('utf-8', 'surrogatepass')).hexdigest()}"
