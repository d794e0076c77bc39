"""The adapter of sandbox-agent: ACP over HTTP, with a scribe.

The server keeps only its newest events, and none after its end. So the daemon that gives it a prompt also reads the
turn to its end, and saves a record in the sandbox, from which the turn can be read after its server has died.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import ClassVar

from holdfast.agents.acp.adapter import AcpAgent
from holdfast.agents.acp.messages import is_answer, update_of
from holdfast.agents.acp.turn import AcpTurn, request_id
from holdfast.agents.base import START, AgentEvent, ConversationId, Cursor, Place, Prompt
from holdfast.agents.sandbox_agent import server
from holdfast.agents.sandbox_agent.scribe import Scribe, after_cursor, ending
from holdfast.agents.sandbox_agent.wire import SENT, HttpSupervisor
from holdfast.agents.supervisor import Launch, OutputLine, Timeouts, record
from holdfast.agents.supervisor.output import find_process
from holdfast.errors import AgentDown, AgentFailed
from holdfast.sessions.use.processes import ProcessView
from holdfast.vocabulary.turn_events import Kind, StopReason

_UNHEARD_SECONDS = 10.0
"""How long to wait for a sign that a prompt has arrived, if a daemon may have died while it sent the prompt."""
_RECORD_SECONDS = 20.0


class SandboxAgent(AcpAgent):
    """sandbox-agent with opencode behind it."""

    name = "sandbox-agent"
    behind: ClassVar[str] = "opencode"
    """The agent behind it, by sandbox-agent's name."""
    preset = "opencode-acp"

    def __init__(self, timeouts: Timeouts | None = None) -> None:
        self._http = HttpSupervisor(self.name, self.behind, timeouts)
        super().__init__(timeouts, self._http)
        self._scribes: dict[str, Scribe] = {}

    async def _launch(self, place: Place) -> Launch:
        launch, argv = await super()._launch(place), server.argv(await self._supervisor.directory(place))
        return replace(launch, argv=argv, env={**launch.env, **server.ENVIRONMENT}, told_of_cuts=False)

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def prompt(self, place: Place, conversation: ConversationId, prompt: Prompt) -> None:
        await super().prompt(place, conversation, prompt)
        name = self._prompts.name(conversation, prompt.id)
        directory = await self._supervisor.directory(place)
        if name not in self._scribes and await record.load(place, directory, name) is None:
            events = super().events(place, conversation, prompt.id, START)
            scribe = self._scribes[name] = Scribe(place, directory, name, events)
            scribe.task.add_done_callback(lambda _task: self._scribes.pop(name, None))

    async def events(
        self, place: Place, conversation: ConversationId, prompt_id: str, after: Cursor
    ) -> AsyncGenerator[AgentEvent, None]:
        turn = await self._turn(place, conversation, prompt_id)
        if turn is None:
            raise AgentFailed(f"{self.name} has had no prompt {prompt_id[:100]}")
        async with contextlib.aclosing(await self._source(turn, conversation, prompt_id, after)) as events:
            async for told in events:
                if told.event.kind is Kind.FINALIZE:
                    await self._wait_for_scribe(turn)
                yield told

    async def _source(
        self, turn: AcpTurn, conversation: ConversationId, prompt_id: str, after: Cursor
    ) -> AsyncGenerator[AgentEvent, None]:
        """Choose where to read the events: from the scribe; from the record, if the turn is over or its server is gone;
        or from the server."""
        scribe = self._scribes.get(turn.name)
        if scribe is not None:
            return scribe.read(after)
        view = await find_process(turn.place, turn.delivery.process_id)
        known = await self._load_record(turn)
        is_gone = view is None or not view.running
        if known is not None and (is_gone or known[-1].event.kind is Kind.FINALIZE):
            return _replay(known, after)
        if not is_gone:
            await self._make_sure(turn)
        return super().events(turn.place, conversation, prompt_id, after)

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
                if isinstance(item, OutputLine | ProcessView):
                    told = item.message if isinstance(item, OutputLine) else {}
                    is_about_it = update_of(told, turn.conversation) is not None
                    if is_about_it or is_answer(told, request_id(turn.name)) or not told:
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
        known += ending(known, reason, turn.mapper().message_id)
        await record.save(turn.place, directory, turn.name, known)
        return known


class SandboxAgentPi(SandboxAgent):
    """sandbox-agent with pi behind it."""

    name = "sandbox-agent-pi"
    behind = "pi"
    preset = "pi-acp"


async def _replay(known: Sequence[AgentEvent], after: Cursor) -> AsyncGenerator[AgentEvent, None]:
    for told in after_cursor(known, after):
        yield told
    if known[-1].event.kind is not Kind.FINALIZE:
        raise AgentDown("the agent died in the middle of the turn; the next message starts it")
