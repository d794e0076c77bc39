"""Doing errands: for callers in this process, and for other daemons, whose wishes are in the store."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any

import structlog

from holdfast.agents.base import Brief, Place
from holdfast.errors import (
    AgentDown,
    AgentError,
    AgentFailed,
    AgentUnsupported,
    BadInput,
    Conflict,
    DriverUnsupported,
    HoldfastError,
    NotFound,
    SandboxLost,
    SessionNotFound,
    StaleRow,
    ThreadNotFound,
    TurnNotFound,
    WrongState,
)
from holdfast.records.machine import PausedAs, Status
from holdfast.records.threads import RequestRow, SleepState, ThreadChange, ThreadRow, TurnRow, TurnState
from holdfast.store.database.reserve import spending
from holdfast.threads import options
from holdfast.threads.commands.git_diff import Diff, cut, git_diff
from holdfast.threads.desk import errands
from holdfast.threads.desk.thread import HeldThread
from holdfast.threads.resolve.resolver import AttachedAgent
from holdfast.threads.resolve.sandboxes import GONE, workdir_of
from holdfast.threads.tools import Tools
from holdfast.threads.types import AgentCommands, IdlePolicy, sleep_event
from holdfast.vocabulary.turn_events import Kind, TurnEvent

log = structlog.get_logger(__name__)

_MANY = 1000
_MOST_REVERTS = 3
"""How often an agent is told to take back a turn."""
_ALL_THERE = "the sandbox, the agent and its session were all there"
_RUNNING = "a turn is running; abort it, or wait for its end"


class Work:
    """Does errands, for any thread that this daemon holds."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._known: Mapping[type[errands.Errand[Any]], Callable[[HeldThread, Any], Awaitable[Any]]] = {
            errands.Resolve: self._resolve,
            errands.Abort: self._abort,
            errands.AnswerQuestion: self._answer,
            errands.Revert: self._revert,
            errands.Pause: self._pause,
            errands.Delete: self._delete,
            errands.ChangeOptions: self._change_options,
            errands.ShowDiff: self._diff,
            errands.ListCommands: self._commands,
            errands.BeginAnew: self._begin_anew,
            errands.UseModel: self._use_model,
            errands.StopAgent: self._stop_agent,
        }

    async def here(self, thread: HeldThread, errand: errands.Errand[Any], result: "asyncio.Future[Any]") -> None:
        """Do an errand for a caller in this process."""
        try:
            found = await self._known[type(errand)](thread, errand)
        except StaleRow as error:
            _refuse(result, error)
            raise
        except HoldfastError as error:
            _refuse(result, error)
        except BaseException:
            _refuse(result, Conflict("the thread is another daemon's now; ask again"))
            raise
        else:
            if not result.done():
                result.set_result(found)

    async def of_another(self, thread: HeldThread, request: RequestRow) -> None:
        """Do an errand for a daemon that has left its wish in the store."""
        try:
            errand = errands.read_errand(request.kind, request.data)
            found = await self._known[type(errand)](thread, errand)
            result = {} if found is None else asdict(found)
        except StaleRow:
            raise
        except HoldfastError as error:
            result = {"error": {"code": error.code, "message": error.message}}
        except Exception:  # it would only fail again, and who has asked waits
            log.exception("thread.request.failed", thread_id=thread.id, request_id=request.id, kind=request.kind)
            trouble = HoldfastError("something unexpected happened; the log of the daemon that has the thread has it")
            result = {"error": {"code": trouble.code, "message": trouble.message}}
        await self._tools.write(lambda: self._tools.store.thread_requests.finish(thread.lease, request.id, result))

    # -- the agent and its turns -------------------------------------------------------------------------------------

    async def _resolve(self, thread: HeldThread, errand: errands.Resolve) -> errands.AgentReady:
        found, noted = await thread.use(errand.channel)
        why, changed = found.why or _ALL_THERE, noted or found.changed
        return errands.AgentReady(found.place.session_id, found.conversation, found.how, why, changed)

    async def _abort(self, thread: HeldThread, errand: errands.Abort) -> errands.TurnFound:
        run = thread.runs.get(errand.channel)
        if run is None or errand.turn_id not in (None, run.turn.id):
            return errands.TurnFound(None)
        await run.abort()
        return errands.TurnFound(run.turn.id)

    async def _answer(self, thread: HeldThread, errand: errands.AnswerQuestion) -> None:
        question = errand.question_id
        for run in thread.runs.values():
            if run.questions.is_open(question):
                await run.answer(question, errand.answer)
                return
            if run.questions.knows(question):
                raise WrongState(f"the question {question} is closed")
        raise NotFound(f"no turn that is running has asked a question {question}")

    async def _revert(self, thread: HeldThread, errand: errands.Revert) -> errands.TurnFound:
        with thread.held(errand.channel):
            turns = [turn for turn in await self._turns(thread) if turn.channel == errand.channel]
            if errand.channel in thread.runs or any(turn.state != TurnState.ENDED for turn in turns):
                raise WrongState(_RUNNING)
            there = [turn for turn in turns if not turn.reverted]
            index = next((at for at, turn in enumerate(there) if turn.id == errand.turn_id), None)
            if index is None:
                raise TurnNotFound("there is no such turn that could be taken back")
            back = there[: index + 1]  # newest first
            await self._revert_agent(thread, errand.channel, back)
            told = TurnEvent(Kind.REVERTED, {"turn_ids": [turn.id for turn in back]})
            await self._tools.write(lambda: self._tools.store.turns.revert(thread.lease, errand.turn_id, events=[told]))
        return errands.TurnFound(errand.turn_id)

    async def _turns(self, thread: HeldThread) -> list[TurnRow]:
        return await self._tools.store.turns.page(thread.id, limit=_MANY)

    async def _revert_agent(self, thread: HeldThread, channel: str, turns: list[TurnRow]) -> None:
        """Have the agent take back what it ever had. It is told again where perhaps only its reply was lost."""
        asked = [turn for turn in reversed(turns) if turn.accepted or turn.attempts]
        for tries in range(1, _MOST_REVERTS + 1 if asked else 1):
            try:
                await self._tell_revert(thread, channel, asked)
                return
            except (AgentDown, AgentFailed, SandboxLost) as error:
                if tries == _MOST_REVERTS:
                    raise
                log.warning("thread.revert.retry", thread_id=thread.id, code=error.code, error=error.message)
                await self._tools.sleep(self._tools.settings.retry_seconds)

    async def _tell_revert(self, thread: HeldThread, channel: str, asked: list[TurnRow]) -> None:
        """Tell the agent. ``asked`` has the oldest first; what it took up must be in its present conversation."""
        found = await thread.attach(channel)
        first = await self._first_taken_up(found, asked)
        if first is None:
            return
        if not found.agent.abilities.revert:
            raise AgentUnsupported(f"the agent {found.agent.name} cannot take back a turn")
        if first.agent_session_id != found.conversation:
            raise AgentUnsupported("the agent that did this turn is gone, so its work cannot be taken back")
        await found.agent.revert(found.place, found.conversation, first.id)

    async def _first_taken_up(self, found: AttachedAgent, asked: list[TurnRow]) -> TurnRow | None:
        """Return the first turn that the agent took up. Where the row does not say so, the agent itself is asked."""
        for turn in asked:
            if turn.accepted:
                return turn
            same = turn.agent_session_id == found.conversation
            if same and await found.agent.accepted(found.place, found.conversation, turn.id):
                return turn
        return None

    async def _diff(self, thread: HeldThread, errand: errands.ShowDiff) -> Diff:
        """Ask the agent what the turn has changed, where it can tell; else git, about the working directory."""
        turns, wanted = await self._turns(thread), errand.turn_id
        mine = [turn for turn in turns if turn.channel == errand.channel and not turn.reverted and turn.accepted]
        turn = next((one for one in mine if wanted in (None, one.id)), None)
        if wanted is not None and turn is None:
            raise TurnNotFound(f"there is no turn {wanted} of an agent in this channel, or it was taken back")
        found = await self._diff_without_agent(thread, errand.channel, turn)
        return found or await self._diff_of_turn(thread, errand.channel, turn)

    async def _diff_without_agent(self, thread: HeldThread, channel: str, turn: TurnRow | None) -> Diff | None:
        """Ask git alone, where the agent cannot tell and the sandbox is awake: an agent takes seconds to start."""
        found = await self._tools.store.threads.standing(thread.id, channel)
        row, session = found.thread, found.session
        if turn is not None and self._tools.agents.get(row.agent).abilities.diff:
            return None
        awake = session is not None and session.status == Status.ACTIVE and row.sleep_state == SleepState.AWAKE
        workdir = workdir_of(row)
        if session is None or not awake or session.node != self._tools.node or workdir is None:
            return None
        await thread.note_use(channel)
        try:
            return await git_diff(Place(session.id, self._tools.sessions, channel, Brief(workdir=workdir)))
        except GONE as error:
            log.info("agent.diff.failed", thread_id=row.id, error=error.message, next="the thread is resolved")
            return None

    async def _diff_of_turn(self, thread: HeldThread, channel: str, turn: TurnRow | None) -> Diff:
        found, _noted = await thread.use(channel)
        if turn is not None and found.agent.abilities.diff and turn.agent_session_id == found.conversation:
            try:
                return cut((await found.agent.diff(found.place, found.conversation, turn.id)).encode(), "agent")
            except (AgentFailed, AgentUnsupported) as error:
                log.info("agent.diff.failed", thread_id=thread.id, error=error.message, next="git is asked")
        return await git_diff(found.place)

    async def _commands(self, thread: HeldThread, errand: errands.ListCommands) -> AgentCommands:
        found, _noted = await thread.use(errand.channel)
        return AgentCommands(found.agent.name, await found.agent.commands(found.place, found.conversation))

    async def _begin_anew(self, thread: HeldThread, errand: errands.BeginAnew) -> errands.BegunAnew:
        """Leave the old conversation to itself; the next resolve makes another, which is told nothing of it."""
        with thread.held(errand.channel):
            if errand.channel in await self._running(thread):
                raise WrongState(_RUNNING)
            told = TurnEvent(Kind.NEW_SESSION, {})
            row = await self._tools.store.threads.start_over(thread.lease, errand.channel, events=[told])
        return errands.BegunAnew(row.last_seq)

    async def _running(self, thread: HeldThread) -> set[str]:
        """Return the channels whose turn has not ended, also if nobody works on it in this moment."""
        return {turn.channel for turn in await self._tools.store.turns.unfinished(thread.id)} | set(thread.runs)

    async def _stop_agent(self, thread: HeldThread, errand: errands.StopAgent) -> None:
        """Stop it if it is still idle: the janitor looked without the lease. A sleeping sandbox is left alone."""
        channel, seconds, threads = errand.channel, errand.idle_seconds, self._tools.store.threads
        with thread.held(channel):
            row, known = await threads.get(thread.id), await threads.channel(thread.id, channel)
            if known is None or row.session_id is None or row.sleep_state != SleepState.AWAKE:
                return
            if channel in await self._running(thread):
                return
            if seconds is not None and known.updated_at + seconds > time.time():
                return
            agent = self._tools.agents.get(row.agent)
            await agent.stop(Place(row.session_id, self._tools.sessions, channel))
        log.info("agent.idle.stopped", thread_id=row.id, key=row.key, channel=channel, agent=agent.name)

    # -- the thread --------------------------------------------------------------------------------------------------

    async def _change_options(self, thread: HeldThread, errand: errands.ChangeOptions) -> None:
        """Set options, for the next turn or the next sandbox. ``WrongState`` for another agent in mid-turn."""
        threads, wanted = self._tools.store.threads, errand.options

        def revised(row: ThreadRow) -> ThreadChange:
            chosen = options.merged(options.from_json(row.settings), wanted)
            return {"settings": {**row.settings, **options.to_json(chosen)}, "agent": chosen.agent or row.agent}

        if wanted.agent is None:
            await threads.revise(thread.lease, revised)
            return
        async with thread.standstill():
            row = await threads.get(thread.id)
            if wanted.agent != row.agent:
                if await self._running(thread):
                    raise WrongState(_RUNNING)
                await self._stop_agents(row)
            await threads.revise(thread.lease, revised)

    async def _stop_agents(self, row: ThreadRow) -> None:
        """Stop the agents of all channels: the thread gets another one, and nobody would look after these any more."""
        if row.session_id is None or row.sleep_state not in (SleepState.AWAKE, SleepState.PAUSED):
            return  # it has no processes
        for channel in await self._tools.store.threads.channels(row.id):
            try:
                agent = self._tools.agents.get(row.agent)
                await agent.stop(Place(row.session_id, self._tools.sessions, channel.channel))
            except GONE:
                return
            except (AgentError, BadInput) as error:  # it cannot be ended, or is not offered here any more
                log.warning("agent.left", thread_id=row.id, channel=channel.channel, agent=row.agent, error=str(error))

    async def _use_model(self, thread: HeldThread, errand: errands.UseModel) -> None:
        model = errand.model

        def revised(row: ThreadRow) -> ThreadChange:
            others = {name: value for name, value in row.settings.items() if name != "model"}
            return {"settings": others if model is None else {**others, "model": model}}

        told = TurnEvent(Kind.MODEL_CHOSEN, {"model": model})
        await self._tools.store.threads.revise(thread.lease, revised, events=[told])

    async def _pause(self, thread: HeldThread, errand: errands.Pause) -> None:
        store = self._tools.store
        if thread.runs:
            raise Conflict(_RUNNING)
        async with thread.standstill():  # a turn that began meanwhile would be frozen in its midst
            if await self._running(thread):
                raise Conflict(_RUNNING)
            row = await store.threads.get(thread.id)
            if row.session_id is not None:
                how = PausedAs.FILES if errand.hibernate else PausedAs.FROZEN
                state = await put_to_sleep(self._tools, row.session_id, how)
                news = [sleep_event(state)] if state != row.sleep_state else []
                await store.threads.change(thread.lease, {"sleep_state": state}, events=news)

    async def rest(self, thread: HeldThread, policy: IdlePolicy) -> None:
        """Put a thread to sleep that sleeps right after each turn. What cannot be done now the janitor does."""
        try:
            await self._pause(thread, errands.Pause(hibernate=policy.hibernate_after_seconds == 0))
        except Conflict:
            return  # another turn runs: its end comes here, too
        except (StaleRow, ThreadNotFound):
            raise
        except HoldfastError as error:
            log.warning("thread.rest.failed", thread_id=thread.id, code=error.code, error=error.message)

    async def _delete(self, thread: HeldThread, _errand: errands.Delete) -> None:
        with spending():
            await thread.end_turns()
            try:
                row = await self._tools.write(lambda: self._tools.store.threads.delete(thread.lease))
            except BaseException:
                thread.stay()
                raise
            if row.session_id is not None:
                try:
                    await destroy(self._tools, row.session_id)
                    await self._tools.store.threads.set_session(thread.lease, None)
                except StaleRow:
                    raise
                except HoldfastError as error:
                    log.warning(
                        "thread.delete.failed", thread_id=row.id, error=error.message, next="the janitor goes on"
                    )


async def put_to_sleep(tools: Tools, session_id: str, how: PausedAs) -> SleepState:
    """Pause a session as asked for, or as its driver can; return what it is then."""
    try:
        view = await tools.sessions.pause(session_id, how)
    except DriverUnsupported:
        if how is PausedAs.FILES:
            raise
        view = await tools.sessions.pause(session_id, PausedAs.FILES)
    return SleepState.PAUSED if view.paused_as == PausedAs.FROZEN else SleepState.HIBERNATED


async def destroy(tools: Tools, session_id: str) -> None:
    """Destroy a session. One that is not there is fine."""
    try:
        await tools.sessions.destroy(session_id)
    except SessionNotFound:
        return


def _refuse(result: "asyncio.Future[Any]", error: HoldfastError) -> None:
    if not result.done():
        result.set_exception(error)
        result.exception()  # whoever asked may be gone
