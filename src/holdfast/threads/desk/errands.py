"""What is asked of whoever holds a thread's lease: resolve, abort, answer, revert, pause, delete.

An errand is a word and a small JSON object, and so is its result: it may come from a caller in this process, or by way
of the store from another daemon.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import structlog

from holdfast.agents.base import Place
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
    by_code,
)
from holdfast.records.machine import PausedAs
from holdfast.records.threads import RequestRow, SleepState, ThreadChange, ThreadRow, TurnRow, TurnState
from holdfast.store.database.reserve import spending
from holdfast.threads import options
from holdfast.threads.desk.command_errands import CommandErrands, refuse_running
from holdfast.threads.resolve.resolver import Attached
from holdfast.threads.resolve.sandboxes import GONE
from holdfast.threads.tools import Tools, retry_write
from holdfast.threads.types import IdlePolicy, sleep_event
from holdfast.vocabulary.turn_events import Kind, TurnEvent

if TYPE_CHECKING:
    from holdfast.threads.desk.mailbox import Mailbox

log = structlog.get_logger(__name__)

Data = Mapping[str, object]
_MANY = 1000
_MOST_REVERTS = 3
"""How often an agent is told to take back a turn."""
_ALL_THERE = "the sandbox, the agent and its session were all there"


class Errands:
    """Does them, for any mailbox."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._known: dict[str, Callable[[Mailbox, Data], Awaitable[Data]]] = {
            "resolve": self._resolve,
            "abort": self._abort,
            "answer": self._answer,
            "revert": self._revert,
            "pause": self._pause,
            "delete": self._delete,
            "options": self._options,
            **CommandErrands(tools).known,
        }

    async def here(self, box: "Mailbox", kind: str, data: Data, result: "asyncio.Future[Data]") -> None:
        """For a caller in this process."""
        try:
            found = await self._do(box, kind, data)
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

    async def of_another(self, box: "Mailbox", request: RequestRow) -> None:
        """For a daemon that has left its wish in the store."""
        try:
            result = await self._do(box, request.kind, request.data)
        except StaleRow:
            raise
        except HoldfastError as error:
            result = {"error": {"code": error.code, "message": error.message}}
        except Exception:  # it would only fail again, and who has asked waits
            log.exception("thread.request.failed", thread_id=box.thread_id, request_id=request.id, kind=request.kind)
            trouble = HoldfastError("something unexpected happened; the log of the daemon that has the thread has it")
            result = {"error": {"code": trouble.code, "message": trouble.message}}
        await retry_write(
            lambda: self._tools.store.thread_requests.finish(box.lease, request.id, result), self._tools.sleep
        )

    async def _do(self, box: "Mailbox", kind: str, data: Data) -> Data:
        if kind not in self._known:
            raise BadInput(f"this daemon cannot {kind}; it is older than the one that asks")
        return await self._known[kind](box, data)

    # -- each of them ------------------------------------------------------------------------------------------------

    async def _resolve(self, box: "Mailbox", data: Data) -> Data:
        found, noted = await box.use(_text(data, "channel"))
        return {
            "session_id": found.place.session_id,
            "agent_session_id": found.session,
            "how": str(found.how),
            "why": found.why or _ALL_THERE,
            "changed": noted or found.changed,
        }

    async def _abort(self, box: "Mailbox", data: Data) -> Data:
        run = box.runs.get(_text(data, "channel"))
        if run is None or data.get("turn_id") not in (None, run.turn.id):
            return {"turn_id": None}
        await run.abort()
        return {"turn_id": run.turn.id}

    async def _answer(self, box: "Mailbox", data: Data) -> Data:
        question = _text(data, "question_id")
        for run in box.runs.values():
            if run.questions.is_open(question):
                await run.answer(question, _text(data, "answer"))
                return {}
            if run.questions.knows(question):
                raise WrongState(f"the question {question} is closed")
        raise NotFound(f"no turn that is running has asked a question {question}")

    async def _revert(self, box: "Mailbox", data: Data) -> Data:
        channel, wanted = _text(data, "channel"), _text(data, "turn_id")
        with box.held(channel):
            return await self._take_back(box, channel, wanted)

    async def _take_back(self, box: "Mailbox", channel: str, wanted: str) -> Data:
        turns = [turn for turn in await self._turns(box) if turn.channel == channel]
        if channel in box.runs or any(turn.state != TurnState.ENDED for turn in turns):
            raise WrongState("a turn is running; abort it, or wait for its end")
        there = [turn for turn in turns if not turn.reverted]
        index = next((at for at, turn in enumerate(there) if turn.id == wanted), None)
        if index is None:
            raise TurnNotFound("there is no such turn that could be taken back")
        back = there[: index + 1]  # newest first
        await self._revert_agent(box, channel, back)
        told = TurnEvent(Kind.REVERTED, {"turn_ids": [turn.id for turn in back]})
        await retry_write(
            lambda: self._tools.store.turns.revert(box.lease, back[-1].id, events=[told]), self._tools.sleep
        )
        return {"turn_id": back[-1].id}

    async def _turns(self, box: "Mailbox") -> list[TurnRow]:
        return await self._tools.store.turns.page(box.thread_id, limit=_MANY)

    async def _revert_agent(self, box: "Mailbox", channel: str, turns: list[TurnRow]) -> None:
        """Those that its agent ever had. Told again where it may have done it, and only its reply was lost."""
        asked = [turn for turn in reversed(turns) if turn.accepted or turn.attempts]
        for tries in range(1, _MOST_REVERTS + 1 if asked else 1):
            try:
                await self._tell_revert(box, channel, asked)
                return
            except (AgentDown, AgentFailed, SandboxLost) as error:
                if tries == _MOST_REVERTS:
                    raise
                log.warning("thread.revert.retry", thread_id=box.thread_id, code=error.code, error=error.message)
                await self._tools.sleep(self._tools.settings.retry_seconds)

    async def _tell_revert(self, box: "Mailbox", channel: str, asked: list[TurnRow]) -> None:
        """``asked``: oldest first. What it took up must be in the session that it has now."""
        found = await box.attach(channel)
        first = await self._first_taken_up(found, asked)
        if first is None:
            return
        if not found.agent.abilities.revert:
            raise AgentUnsupported(f"the agent {found.agent.name} cannot take back a turn")
        if first.agent_session_id != found.session:
            raise AgentUnsupported("the agent that did this turn is gone, so its work cannot be taken back")
        await found.agent.revert(found.place, found.session, first.id)

    async def _first_taken_up(self, found: Attached, asked: list[TurnRow]) -> TurnRow | None:
        """Of a prompt whose fate was not known at the end of its turn, the agent itself knows."""
        for turn in asked:
            if turn.accepted:
                return turn
            same = turn.agent_session_id == found.session
            if same and await found.agent.accepted(found.place, found.session, turn.id):
                return turn
        return None

    async def _pause(self, box: "Mailbox", data: Data) -> Data:
        running = Conflict("a turn is running; abort it, or wait for its end")
        if box.runs:
            raise running
        async with box.standstill():  # a turn that began meanwhile would be frozen in its midst
            if box.runs or await self._tools.store.turns.unfinished(box.thread_id):
                raise running
            row = await self._tools.store.threads.get(box.thread_id)
            if row.session_id is not None:
                how = PausedAs.FILES if data.get("hibernate") else PausedAs.FROZEN
                state = await put_to_sleep(self._tools, row.session_id, how)
                news = [sleep_event(state)] if state != row.sleep_state else []
                await self._tools.store.threads.change(box.lease, {"sleep_state": state}, events=news)
        return {}

    async def rest(self, box: "Mailbox", policy: IdlePolicy) -> None:
        """After a turn of a thread that goes to sleep at once. What cannot be done now the janitor does."""
        try:
            await self._pause(box, {"hibernate": policy.hibernate_after_seconds == 0})
        except Conflict:
            return  # another turn runs: its end comes here, too
        except (StaleRow, ThreadNotFound):
            raise
        except HoldfastError as error:
            log.warning("thread.rest.failed", thread_id=box.thread_id, code=error.code, error=error.message)

    async def _options(self, box: "Mailbox", data: Data) -> Data:
        """They hold from the next turn, or the next sandbox, on. ``WrongState`` for another agent in mid-turn."""
        told = data.get("options")
        wanted = options.from_json(told if isinstance(told, Mapping) else {})

        def revised(row: ThreadRow) -> ThreadChange:
            chosen = options.merged(options.from_json(row.settings), wanted)
            return {"settings": {**row.settings, **options.to_json(chosen)}, "agent": chosen.agent or row.agent}

        if wanted.agent is None:
            await self._tools.store.threads.revise(box.lease, revised)
            return {}
        async with box.standstill():
            row = await self._tools.store.threads.get(box.thread_id)
            if wanted.agent != row.agent:
                await refuse_running(self._tools, box)
                await self._stop_agents(row)
            await self._tools.store.threads.revise(box.lease, revised)
        return {}

    async def _stop_agents(self, row: ThreadRow) -> None:
        """Of all channels: the thread gets another one, and nobody would look after these any more."""
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

    async def _delete(self, box: "Mailbox", data: Data) -> Data:
        with spending():
            return await self._delete_for_good(box, data)

    async def _delete_for_good(self, box: "Mailbox", _data: Data) -> Data:
        await box.end_turns()
        try:
            row = await retry_write(lambda: self._tools.store.threads.delete(box.lease), self._tools.sleep)
        except BaseException:
            box.go_on()
            raise
        if row.session_id is not None:
            try:
                await destroy(self._tools, row.session_id)
                await self._tools.store.threads.set_session(box.lease, None)
            except StaleRow:
                raise
            except HoldfastError as error:
                log.warning("thread.delete.failed", thread_id=row.id, error=error.message, next="the janitor goes on")
        return {}


async def put_to_sleep(tools: Tools, session_id: str, how: PausedAs) -> SleepState:
    """As asked for, or as its driver can; and what it is then."""
    try:
        view = await tools.sessions.pause(session_id, how)
    except DriverUnsupported:
        if how is PausedAs.FILES:
            raise
        view = await tools.sessions.pause(session_id, PausedAs.FILES)
    return SleepState.PAUSED if view.paused_as == PausedAs.FROZEN else SleepState.HIBERNATED


async def destroy(tools: Tools, session_id: str) -> None:
    """One that is not there is fine."""
    try:
        await tools.sessions.destroy(session_id)
    except SessionNotFound:
        return


def raised(result: Data) -> Data:
    """The result of an errand that another daemon did; its error is raised here."""
    error = result.get("error")
    if isinstance(error, Mapping):
        raise by_code(str(error.get("code")))(str(error.get("message")))
    return result


def _refuse(result: "asyncio.Future[Data]", error: HoldfastError) -> None:
    if not result.done():
        result.set_exception(error)
        result.exception()  # whoever asked may be gone


def _text(data: Data, name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise BadInput(f"{name}: a text is missing")
    return value
