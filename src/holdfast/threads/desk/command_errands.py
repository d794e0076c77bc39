"""Errands that are commands on a thread's agent: what has changed, begin anew, which commands, which model, stop."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import structlog

from holdfast.agents.base import Brief, Place
from holdfast.errors import AgentFailed, AgentUnsupported, BadInput, TurnNotFound, WrongState
from holdfast.records.machine import Status
from holdfast.records.threads import SleepState, ThreadChange, ThreadRow, TurnRow
from holdfast.threads.commands.git_diff import Diff, cut, git_diff
from holdfast.threads.resolve.sandboxes import GONE
from holdfast.threads.resolve.workspaces import workdir_of
from holdfast.threads.tools import Tools
from holdfast.vocabulary.turn_events import Kind, TurnEvent

if TYPE_CHECKING:
    from holdfast.threads.desk.mailbox import Mailbox

log = structlog.get_logger(__name__)

Data = Mapping[str, object]
_MANY = 1000


class CommandErrands:
    """Does them, for any mailbox."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self.known: dict[str, Callable[[Mailbox, Data], Awaitable[Data]]] = {
            "diff": self._diff,
            "commands": self._commands,
            "new_session": self._new_session,
            "model": self._model,
            "stop_agent": self._stop_agent,
        }

    async def _diff(self, box: "Mailbox", data: Data) -> Data:
        """Of a turn, from the agent itself, where it can; else of the working directory, from git."""
        channel, wanted = _text(data, "channel"), data.get("turn_id")
        turn = await self._turn(box.thread_id, channel, wanted if isinstance(wanted, str) else None)
        diff = await self._without_agent(box, channel, turn) or await self._of_turn(box, channel, turn)
        return {"text": diff.text, "source": diff.source, "truncated": diff.truncated}

    async def _turn(self, thread_id: str, channel: str, wanted: str | None) -> TurnRow | None:
        turns = await self._tools.store.turns.page(thread_id, limit=_MANY)
        mine = [turn for turn in turns if turn.channel == channel and not turn.reverted and turn.accepted]
        turn = next((one for one in mine if wanted in (None, one.id)), None)
        if wanted is not None and turn is None:
            raise TurnNotFound(f"there is no turn {wanted} of an agent in this channel, or it was taken back")
        return turn

    async def _without_agent(self, box: "Mailbox", channel: str, turn: TurnRow | None) -> Diff | None:
        """From git alone, where the agent cannot tell and the sandbox is awake: an agent takes seconds to start."""
        found = await self._tools.store.threads.standing(box.thread_id, channel)
        row, session = found.thread, found.session
        if turn is not None and self._tools.agents.get(row.agent).abilities.diff:
            return None
        awake = session is not None and session.status == Status.ACTIVE and row.sleep_state == SleepState.AWAKE
        workdir = workdir_of(row)
        if session is None or not awake or session.node != self._tools.node or workdir is None:
            return None
        await box.note_use(channel)
        try:
            return await git_diff(Place(session.id, self._tools.sessions, channel, Brief(workdir=workdir)))
        except GONE as error:
            log.info("agent.diff.failed", thread_id=row.id, error=error.message, next="the thread is resolved")
            return None

    async def _of_turn(self, box: "Mailbox", channel: str, turn: TurnRow | None) -> Diff:
        found, _noted = await box.use(channel)
        if turn is not None and found.agent.abilities.diff and turn.agent_session_id == found.session:
            try:
                return cut((await found.agent.diff(found.place, found.session, turn.id)).encode(), "agent")
            except (AgentFailed, AgentUnsupported) as error:
                log.info("agent.diff.failed", thread_id=box.thread_id, error=error.message, next="git is asked")
        return await git_diff(found.place)

    async def _commands(self, box: "Mailbox", data: Data) -> Data:
        found, _noted = await box.use(_text(data, "channel"))
        listed = await found.agent.commands(found.place, found.session)
        return {
            "agent": found.agent.name,
            "commands": [{"name": one.name, "description": one.description} for one in listed],
        }

    async def _new_session(self, box: "Mailbox", data: Data) -> Data:
        """The old one is left to itself; the next resolve makes another, which is told nothing of what was said."""
        channel = _text(data, "channel")
        with box.held(channel):
            await refuse_running(self._tools, box, channel)
            told = TurnEvent(Kind.NEW_SESSION, {})
            row = await self._tools.store.threads.start_over(box.lease, channel, events=[told])
        return {"seq": row.last_seq}

    async def _model(self, box: "Mailbox", data: Data) -> Data:
        """Holds from the next turn on; None is the daemon's default. It was checked by who asks."""
        model = data.get("model")

        def revised(row: ThreadRow) -> ThreadChange:
            others = {name: value for name, value in row.settings.items() if name != "model"}
            return {"settings": {**others, "model": model} if isinstance(model, str) else others}

        told = TurnEvent(Kind.MODEL_CHOSEN, {"model": model})
        await self._tools.store.threads.revise(box.lease, revised, events=[told])
        return {}

    async def _stop_agent(self, box: "Mailbox", data: Data) -> Data:
        """If it is still idle: the janitor looked without holding the thread. A sandbox that sleeps is left alone."""
        channel, seconds = _text(data, "channel"), data.get("idle_seconds")
        store = self._tools.store
        with box.held(channel):
            row, known = await store.threads.get(box.thread_id), await store.threads.channel(box.thread_id, channel)
            if known is None or row.session_id is None or row.sleep_state != SleepState.AWAKE:
                return {"stopped": False}
            if channel in await _running(self._tools, box):
                return {"stopped": False}
            if isinstance(seconds, float) and known.updated_at + seconds > time.time():
                return {"stopped": False}
            agent = self._tools.agents.get(row.agent)
            await agent.stop(Place(row.session_id, self._tools.sessions, channel))
        log.info("agent.idle.stopped", thread_id=row.id, key=row.key, channel=channel, agent=agent.name)
        return {"stopped": True}


async def refuse_running(tools: Tools, box: "Mailbox", channel: str | None = None) -> None:
    """``WrongState`` while a turn is running in the channel; None: in any."""
    running = await _running(tools, box)
    if channel in running or (channel is None and running):
        raise WrongState("a turn is running; abort it, or wait for its end")


async def _running(tools: Tools, box: "Mailbox") -> set[str]:
    """Channels whose turn has not ended, also if nobody works on it in this moment."""
    return {turn.channel for turn in await tools.store.turns.unfinished(box.thread_id)} | set(box.runs)


def _text(data: Data, name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise BadInput(f"{name}: a text is missing")
    return value
