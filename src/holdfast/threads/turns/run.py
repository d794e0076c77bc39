"""One turn, from its prompt to its end; begun here, or taken over from a daemon that is gone.

The row says how far it came, and that alone decides what is done next:

| state, accepted      | what is known                        | what is done |
| -------------------- | ------------------------------------ | ------------------------------------------------------ |
| preparing            | the agent does not have the prompt   | it is asked |
| prompted, no         | it may have                          | the same conversation is asked whether it has |
| any, yes             | it has                               | its events are read on from the cursor |

So a prompt is never run twice. Where nobody can tell whether it ran, the turn ends with an error that says so. The
tables of ``threads.machine`` say how the row's state changes, and what else this daemon knows of the turn.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TypeVar

import structlog

from holdfast.agents.base import AgentEvent, Cursor, Prompt
from holdfast.agents.error_text import in_words
from holdfast.errors import (
    AgentDown,
    AgentFailed,
    AgentSessionMissing,
    HoldfastError,
    SandboxLost,
    StaleRow,
    ThreadNotFound,
)
from holdfast.records.threads import Lease, MessageRow, TurnRow, TurnState
from holdfast.threads import machine, options
from holdfast.threads.files.files import ThreadFileService
from holdfast.threads.machine import AgentWord, Course, Progress, TurnStep, after
from holdfast.threads.resolve.resolver import AttachedAgent
from holdfast.threads.tools import Tools
from holdfast.threads.turns.batches import PAUSE_SECONDS, batches, condense, may_wait
from holdfast.threads.turns.end import TurnEnd, error_event, silence, stop_leftovers
from holdfast.threads.turns.messages import Attachments, Steering
from holdfast.threads.turns.questions import Questions
from holdfast.threads.turns.quota import TurnQuota
from holdfast.threads.types import IdlePolicy
from holdfast.vocabulary.turn_events import Kind, StopReason

log = structlog.get_logger(__name__)

T = TypeVar("T")
_MOST_ASKED = 2
"""The prompt, and one more time after a recovery."""
_MOST_FAILURES = 10


class _GiveUp(Exception):
    """The turn cannot go on; ``error`` is what it ends with."""

    def __init__(self, error: HoldfastError) -> None:
        super().__init__(error.message)
        self.error = error


class _Aborted(Exception):
    """The agent does not have the prompt, and is not given it."""


class TurnRun:
    """The work on one turn. ``run`` is one task; the other methods are called from outside, meanwhile.

    ``attach`` resolves the thread for the turn's channel; ``on_accepted`` is called when the turn can be steered.
    """

    def __init__(
        self,
        tools: Tools,
        files: ThreadFileService,
        lease: Lease,
        turn: TurnRow,
        *,
        attach: Callable[[], Awaitable[AttachedAgent]],
        on_accepted: Callable[[], None],
    ) -> None:
        self._tools = tools
        self._files = files
        self._lease = lease
        self.turn = turn
        self._attach = attach
        self._on_accepted = on_accepted
        self.attached: AttachedAgent | None = None
        """The agent that it talks to; None while that is being brought."""
        self._last: AttachedAgent | None = None
        """The same, also while it is being brought back."""
        self._course = Course.GOING
        self._word = AgentWord.UNCHECKED
        self._progress = Progress.MOVING
        self._failures = 0
        """How often it failed in all."""
        self._preparing: asyncio.Timeout | None = None
        """The limit of what an abort ends at once."""
        self._following: asyncio.Timeout | None = None
        self._quota = TurnQuota(tools, lease.thread_id)
        self._attachments = Attachments(tools, files, lease, turn.id)
        self._steering = Steering(tools, self._attachments, turn)
        self._closing = TurnEnd(tools, lease, turn.id)
        self.questions = Questions(self.answer, seconds=tools.settings.question_seconds, clock=tools.clock)

    @property
    def idle(self) -> IdlePolicy | None:
        """When its thread goes to sleep; None where that was never found out."""
        if self._last is None:
            return None
        row = self._last.thread
        return options.from_json(row.settings).idle or self._tools.settings.idle_of(row.platform)

    @property
    def was_asked(self) -> bool:
        """Whether the agent may be at work on it."""
        return self.turn.accepted or self.turn.state != TurnState.PREPARING

    @property
    def can_be_steered(self) -> bool:
        """Whether its agent is known, can take a message into a running turn, and has taken up this one."""
        found, turn = self.attached, self.turn
        able = found is not None and found.agent.abilities.steer and self._course is Course.GOING
        return able and turn.accepted and turn.state != TurnState.COLLECTING

    async def run(self) -> None:
        """Work to the end, which is written. Only a lost lease, or cancellation, leaves it for somebody else."""
        metrics = self._tools.metrics
        with metrics.turns_running.track_inprogress(), metrics.turn_seconds.time():
            try:
                await self._recall()
                while not await self._try():
                    pass
            except _GiveUp as end:
                await self._end_with(end.error)
            except HoldfastError:
                raise
            except Exception:
                log.exception("turn.bug", thread_id=self._lease.thread_id, turn_id=self.turn.id)
                await self._end_with(HoldfastError("something unexpected happened; the daemon's log has it"))
            finally:
                await self.questions.close()

    async def _recall(self) -> None:
        """Read what a predecessor knew: open questions, and messages that were to go into the turn."""
        kinds = [Kind.QUESTION, Kind.QUESTION_CLOSED]
        asked = await self._tools.write(self._tools.store.thread_events.of_turn, self.turn.id, kinds=kinds)
        self.questions.note((event.kind, event.data) for event in asked)
        if self.turn.accepted:
            await self._steering.recall()

    async def _try(self) -> bool:
        """Try once; return whether it has ended. False: it is worth another try."""
        try:
            await self._go()
        except (StaleRow, ThreadNotFound):
            raise
        except _Aborted:
            await self._end(StopReason.CANCELED)
        except HoldfastError as error:
            self.attached = None
            if self._course is not Course.GOING:
                await self._end(StopReason.CANCELED)
                return True
            self._failures += 1
            self._progress = after(machine.PROGRESS, self._progress, machine.ProgressEvent.FAIL)
            if self._progress is Progress.STUCK or self._failures > _MOST_FAILURES:
                raise _GiveUp(error) from error
            log.warning("sandbox.prompt.recoverable_fail", **self._about(error))
            return False
        return True

    async def _go(self) -> None:
        found = await self._prepare()
        self.attached = self._last = found
        if await self._must_ask(found):
            prompt = await self._until_aborted(self._prompt(found))
            if prompt is None:
                self.attached = None
                await self._go()
                return
            await self._ask(found, prompt)
        self._on_accepted()
        if self._course is not Course.GOING:
            await self._tell_abort(found)
        async with self._steering.delivering(found):
            await self._follow(found)

    # -- the prompt --------------------------------------------------------------------------------------------------

    async def _prepare(self) -> AttachedAgent:
        """Make the agent ready and return it."""
        try:
            return await (self._attach() if self.was_asked else self._until_aborted(self._listen_and_attach()))
        except (StaleRow, ThreadNotFound):
            raise
        except HoldfastError as error:  # it was tried for long enough
            raise _GiveUp(error) from error

    async def _until_aborted(self, work: Coroutine[None, None, T]) -> T:
        """Do what comes before the agent has the prompt. Raises ``_Aborted``, also if that was before."""
        if self._course is not Course.GOING:
            work.close()
            raise _Aborted
        try:
            async with asyncio.timeout(None) as self._preparing:
                return await work
        except TimeoutError:
            if self._preparing is None or not self._preparing.expired():
                raise  # somebody else's, and no abort
            raise _Aborted from None
        finally:
            self._preparing = None

    async def _listen_and_attach(self) -> AttachedAgent:
        await self._attachments.listen(self.turn.attachments)
        return await self._attach()

    async def _must_ask(self, found: AttachedAgent) -> bool:
        turn = self.turn
        if self.was_asked and turn.agent_session_id != found.conversation:
            unknown = "it is not known whether the agent had begun when it was lost"
            lost = "the agent was lost in the middle of the turn" if turn.accepted else unknown
            raise _GiveUp(SandboxLost(f"{lost}: {found.why or 'it is gone'}"))
        if turn.accepted:
            return False
        if self.was_asked and await found.agent.accepted(found.place, found.conversation, turn.id):
            await self._note(TurnStep.ACCEPT)
            return False
        self._check_asked()
        return True

    async def _prompt(self, found: AttachedAgent) -> Prompt | None:
        """Return what it is asked; None once, if the agent had to be stopped and must be brought back."""
        if self._word is AgentWord.UNCHECKED:
            self._word = after(machine.AGENT_WORD, self._word, machine.AgentWordEvent.CHECK)
            if not await stop_leftovers(self._tools, found, self.turn):
                return None
        turn = self.turn
        text, paths = await self._attachments.bring(found.place.session_id, turn.prompt, turn.attachments)
        return Prompt(turn.id, text, paths, turn.model or options.from_json(found.thread.settings).model)

    def _check_asked(self) -> None:
        if self.turn.attempts >= _MOST_ASKED:
            raise _GiveUp(AgentFailed("the agent did not take the prompt up, also when it was asked again"))

    async def _ask(self, found: AttachedAgent, prompt: Prompt) -> None:
        turn = self.turn
        if self._course is not Course.GOING:
            raise _Aborted
        if turn.attempts:
            self._tools.metrics.prompt_retries.inc()
        await self._note(TurnStep.ASK, agent_session_id=found.conversation)
        try:
            await found.agent.prompt(found.place, found.conversation, prompt)
        except (AgentDown, AgentSessionMissing):
            await self._note(TurnStep.REFUSE)  # certainly not accepted
            raise
        await self._note(TurnStep.ACCEPT)
        log.info("sandbox.prompt.ok", thread_id=turn.thread_id, turn_id=turn.id, attempts=self.turn.attempts)

    async def _note(self, step: TurnStep, agent_session_id: str | None = None) -> None:
        state = after(machine.TURN, self.turn.state, step)
        self.turn = await self._tools.write(
            self._tools.store.turns.note,
            *(self._lease, self.turn.id),
            state=state,
            accepted=step is TurnStep.ACCEPT,
            agent_session_id=agent_session_id,
            attempt=step is TurnStep.ASK,
        )

    # -- its events --------------------------------------------------------------------------------------------------

    async def _follow(self, found: AttachedAgent) -> None:
        settings = self._tools.settings
        limit = settings.turn_seconds if self._course is Course.GOING else settings.abort_seconds
        try:
            async with asyncio.timeout(limit) as self._following:
                await self._read(found)
                return
        except TimeoutError:
            if self._following is None or not self._following.expired():
                raise
        finally:
            self._following = None
        await self._too_long(found)

    async def _too_long(self, found: AttachedAgent) -> None:
        """Abort the turn whose time is up, or end it without the agent if it was aborted before."""
        before, self._course = self._course, after(machine.COURSE, self._course, machine.CourseEvent.TIME_UP)
        if before is Course.GOING:
            log.warning("turn.overtime", thread_id=self._lease.thread_id, turn_id=self.turn.id)
            await self._tell_abort(found)
            await self._follow(found)
            return
        log.warning("turn.abort.ignored", thread_id=self._lease.thread_id, turn_id=self.turn.id, next="agent stopped")
        await self._end_aborted()

    async def _read(self, found: AttachedAgent) -> None:
        source = found.agent.events(found.place, found.conversation, self.turn.id, Cursor(self.turn.cursor))
        paced = batches(source, may_wait=may_wait, seconds=PAUSE_SECONDS)
        async with contextlib.aclosing(paced) as stream:
            async for batch in stream:
                last = await self._keep([in_words(told) for told in batch])
                if last is not None:
                    await self._finish(found, last)
                    return
        raise AgentFailed("the agent's events ended in the middle of the turn")

    async def _keep(self, batch: Sequence[AgentEvent]) -> AgentEvent | None:
        """Store what was told, with the cursor behind it; returns the finalizing one, which is stored at the end."""
        news = condense([told for told in batch if told.event.kind is not Kind.FINALIZE])
        if news:
            self._progress = after(machine.PROGRESS, self._progress, machine.ProgressEvent.TELL)
            try:
                self._quota.count(news)
            except AgentFailed as error:
                raise _GiveUp(error) from error
            events = [self.questions.complete(told.event) for told in news]
            before, state = self.turn.cursor, after(machine.TURN, self.turn.state, TurnStep.TELL)
            self.turn = await self._tools.write(
                self._tools.store.turns.advance,
                *(self._lease, self.turn.id),
                after=before,
                cursor=news[-1].cursor,
                events=events,
                state=state,
            )
            self.questions.note((event.kind, event.data) for event in events)
            await self._tools.write(self._quota.keep, len(events))
        return next((told for told in batch if told.event.kind is Kind.FINALIZE), None)

    async def _finish(self, found: AttachedAgent, last: AgentEvent) -> None:
        self._word = after(machine.AGENT_WORD, self._word, machine.AgentWordEvent.FINISH)
        if self._course is Course.OVERTIME:
            await self._end_aborted()
            return
        await self._note(TurnStep.COLLECT)
        seconds = self._tools.settings.collect_seconds
        files = await self._files.collect_in_time(found.place.session_id, self.turn, seconds)
        trouble = [error_event(one.code, f"new files could not be fetched: {one.message}") for one in files.trouble]
        trouble += await self._steering.close(found)
        self.turn = await self._closing.write(
            last.event, events=trouble, artifacts=[row.id for row in files.kept.values()], cursor=last.cursor
        )

    # -- its end -----------------------------------------------------------------------------------------------------

    async def _end_with(self, error: HoldfastError) -> None:
        log.error("sandbox.prompt.fatal_fail", **self._about(error))
        await self._end(StopReason.ERROR, error)

    def _about(self, error: HoldfastError) -> dict[str, str]:
        ids = {"thread_id": self._lease.thread_id, "turn_id": self.turn.id}
        return {**ids, "code": error.code, "error": error.message}

    async def _end_aborted(self) -> None:
        if self._course is Course.OVERTIME:
            hours = self._tools.settings.turn_seconds / 3600
            await self._end(StopReason.ERROR, AgentFailed(f"the turn was aborted after {hours:g} hours"))
        else:
            await self._end(StopReason.CANCELED)

    async def _end(self, reason: StopReason, error: HoldfastError | None = None) -> None:
        if self.turn.accepted:
            await self._note(TurnStep.COLLECT)  # the store takes no more messages into it
        events = await self._steering.close(self._last)
        told_so = self._word is AgentWord.FINISHED
        if self._last is not None and self.turn.state != TurnState.PREPARING and not told_so:
            await silence(self._tools, self._last, self.turn.id)
        self.turn = await self._closing.write_own(reason, error, events)

    # -- from outside ------------------------------------------------------------------------------------------------

    async def abort(self) -> None:
        """End it soon: at once if the agent was not asked yet, else when the agent says so, or has had its time."""
        self._course = after(machine.COURSE, self._course, machine.CourseEvent.ABORT)
        if self._preparing is not None:
            _hurry(self._preparing, 0)
        if self._following is not None and self.attached is not None:
            _hurry(self._following, self._tools.settings.abort_seconds)
            await self._tell_abort(self.attached)

    async def _tell_abort(self, found: AttachedAgent) -> None:
        try:
            await found.agent.abort(found.place, found.conversation, self.turn.id)
        except HoldfastError as error:  # its time runs all the same
            log.warning("turn.abort.failed", turn_id=self.turn.id, code=error.code, error=error.message)

    async def answer(self, question_id: str, answer: str) -> None:
        """Answer a question. ``AgentDown`` where the agent is being brought back: try again."""
        found = self.attached
        if found is None:
            raise AgentDown("the agent is being brought back; answer again in a moment")
        await found.agent.answer(found.place, found.conversation, question_id, answer)

    async def steer(self, message: MessageRow) -> None:
        """Hand over a message that is in this turn now."""
        self._steering.add(message)
        if self.attached is not None:
            await self._steering.deliver(self.attached)


def _hurry(limit: asyncio.Timeout, seconds: float) -> None:
    """Leave so much from now on. What is over its time already cannot be given another."""
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time() + seconds)
