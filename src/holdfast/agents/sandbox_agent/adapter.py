"""The adapter of sandbox-agent: ACP over HTTP, with a scribe.

The server keeps only its newest events, and none after its end. So the daemon that gives it a prompt also reads the
turn to its end, and saves a record in the sandbox, from which the turn can be read after its server has died.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import ClassVar, Final

from holdfast.agents.acp.adapter import AcpAgent
from holdfast.agents.acp.conversations import Conversations
from holdfast.agents.acp.messages import is_answer, update_of
from holdfast.agents.acp.presets import PRESETS
from holdfast.agents.acp.turn import AcpTurn, request_id
from holdfast.agents.base import START, AgentEvent, AgentSessionId, Cursor, Place, Prompt
from holdfast.agents.sandbox_agent import remains, server
from holdfast.agents.sandbox_agent.scribe import Scribe
from holdfast.agents.sandbox_agent.wire import SENT, HttpSupervisor
from holdfast.agents.supervisor import Launch, Line, Timeouts, record
from holdfast.agents.supervisor.offers import Offers
from holdfast.errors import AgentDown, AgentFailed, ProcessNotFound
from holdfast.sessions.use.processes import ProcessView
from holdfast.vocabulary.turn_events import Kind, StopReason

_HOME: Final = "home"
_UNHEARD_SECONDS = 10.0
"""How long to wait for a sign that a prompt has arrived, if a daemon may have died while it sent the prompt."""
_RECORD_SECONDS = 20.0


class SandboxAgent(AcpAgent):
    """With opencode behind it."""

    name = "sandbox-agent"
    behind: ClassVar[str] = "opencode"
    """The agent behind it, by sandbox-agent's name."""
    preset: ClassVar[str] = "opencode-acp"

    def __init__(self, timeouts: Timeouts | None = None) -> None:
        self._preset = PRESETS[self.preset]
        self._http = HttpSupervisor(self.name, self.behind, timeouts)
        self._supervisor = self._http
        self._notes = Conversations(self._supervisor.directory)
        self._prompts = self._supervisor.journal("prompts")
        self._offers = Offers(self._supervisor.directory)
        self._scribes: dict[str, Scribe] = {}

    async def start(self, place: Place) -> None:
        await super().start(place)
        await record.prune(place, await self._supervisor.directory(place))

    async def _launch(self, place: Place) -> Launch:
        setting = await self._setting(place)
        return Launch(
            self.name,
            server.argv(await self._supervisor.directory(place)),
            {**place.brief.environment, **self._preset.environment(setting), **server.environment()},
            {f"{_HOME}/{name}": data for name, data in self._preset.files(setting).items()},
            place.brief.workdir,
        )

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def prompt(self, place: Place, session: AgentSessionId, prompt: Prompt) -> None:
        await super().prompt(place, session, prompt)
        name = self._prompts.name(session, prompt.id)
        directory = await self._supervisor.directory(place)
        if name not in self._scribes and await record.load(place, directory, name) is None:
            events = super().events(place, session, prompt.id, START)
            scribe = self._scribes[name] = Scribe(place, directory, name, events)
            scribe.task.add_done_callback(lambda _task: self._scribes.pop(name, None))

    async def events(
        self, place: Place, session: AgentSessionId, prompt_id: str, after: Cursor
    ) -> AsyncGenerator[AgentEvent, None]:
        turn = await self._turn(place, session, prompt_id)
        if turn is None:
            raise AgentFailed(f"{self.name} has had no prompt {prompt_id[:100]}")
        async with contextlib.aclosing(await self._source(turn, session, prompt_id, after)) as events:
            async for told in events:
                if told.event.kind is Kind.FINALIZE:
                    await self._wait_for_scribe(turn)
                yield told

    async def _source(
        self, turn: AcpTurn, session: AgentSessionId, prompt_id: str, after: Cursor
    ) -> AsyncGenerator[AgentEvent, None]:
        """Choose where to read the events: from the scribe; from the record, if the turn is over or its server is gone;
        or from the server."""
        scribe = self._scribes.get(turn.name)
        if scribe is not None:
            return scribe.read(after)
        view = await _process(turn)
        known = await self._load_record(turn)
        is_gone = view is None or not view.running
        if known is not None and (is_gone or known[-1].event.kind is Kind.FINALIZE):
            return _replay(known, after)
        if not is_gone:
            await self._make_sure(turn)
        return super().events(turn.place, session, prompt_id, after)

    async def _wait_for_scribe(self, turn: AcpTurn) -> None:
        """Wait until the record is saved, so that nothing works in the sandbox when the turn is over."""
        scribe = self._scribes.get(turn.name)
        if scribe is not None:
            await asyncio.wait([scribe.task], timeout=_RECORD_SECONDS)
        await self._http.let_go(turn.name)

    async def _make_sure(self, turn: AcpTurn) -> None:
        """Make sure that the server has got the prompt: a daemon may have died while it sent it, and then the turn
        would never end. Raises ``AgentDown`` if that cannot be known."""
        if SENT in turn.delivery.note or turn.name in self._scribes:
            return
        following = self._supervisor.follow(
            turn.place, turn.delivery.process_id, turn.delivery.output, _UNHEARD_SECONDS
        )
        async with contextlib.aclosing(following) as items:
            async for item in items:
                if isinstance(item, Line | ProcessView):
                    told = item.message if isinstance(item, Line) else {}
                    if update_of(told, turn.session) is not None or is_answer(told, request_id(turn.name)) or not told:
                        return
                if item is None:
                    break
        note = await self._prompts.find_named(turn.place, turn.name)
        if note is None or SENT not in note.note:
            await self._supervisor.stop(turn.place)
            raise AgentDown("nobody knows whether the agent was given the prompt; it is ended, so that it never runs")

    # -- what is left of a turn ----------------------------------------------------------------------------------------

    async def _load_record(self, turn: AcpTurn) -> list[AgentEvent] | None:
        """Load the record of a turn, and add an end to it if its server is gone and another one has taken its place."""
        directory = await self._supervisor.directory(turn.place)
        known = await record.load(turn.place, directory, turn.name)
        if not known:
            return None
        if known[-1].event.kind is Kind.FINALIZE:
            return known
        now = await self._supervisor.find(turn.place)
        if now is None or not now.view.running or now.view.process_id == turn.delivery.process_id:
            return known
        reason = StopReason.ERROR if await turn.find_abort() is None else StopReason.CANCELED
        known += remains.ending(known, reason, turn.mapper().message_id)
        await record.save(turn.place, directory, turn.name, known)
        return known


class SandboxAgentPi(SandboxAgent):
    """With pi behind it."""

    name = "sandbox-agent-pi"
    behind = "pi"
    preset = "pi-acp"


async def _replay(known: Sequence[AgentEvent], after: Cursor) -> AsyncGenerator[AgentEvent, None]:
    for told in remains.after(known, after):
        yield told
    if known[-1].event.kind is not Kind.FINALIZE:
        raise AgentDown("the agent died in the middle of the turn; the next message starts it")


async def _process(turn: AcpTurn) -> ProcessView | None:
    try:
        return await turn.place.sandbox.processes.get(turn.place.session_id, turn.delivery.process_id)
    except ProcessNotFound:
        return None
