"""One turn, from its prompt to its end; begun here, or taken over from a daemon that is gone.

The row says how far it came, and that alone decides what is done next:

| state, accepted      | what is known                        | what is done |
| -------------------- | ------------------------------------ | ------------------------------------------------------ |
| preparing            | the agent does not have the prompt   | it is asked |
| prompted, no         | it may have                          | the same agent session is asked whether it has |
| any, yes             | it has                               | its events are read on from the cursor |

So a prompt is never run twice. Where nobody can tell whether it ran, the turn ends with an error that says so.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

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
from holdfast.threads import options
from holdfast.threads.files.files import ThreadFileService
from holdfast.threads.resolve.resolver import Attached
from holdfast.threads.tools import Tools, retry_write
from holdfast.threads.turns import tool_pace
from holdfast.threads.turns.attachments import Attachments
from holdfast.threads.turns.batches import batches
from holdfast.threads.turns.end import TurnEnd, error_event
from holdfast.threads.turns.questions import Questions
from holdfast.threads.turns.quota import TurnQuota
from holdfast.threads.turns.steering import Steering
from holdfast.threads.turns.stop_agent import silence, stop_leftovers
from holdfast.threads.turns.until_aborted import Aborted, UntilAborted, hurry
from holdfast.threads.types import IdlePolicy
from holdfast.vocabulary.turn_events import Kind, StopReason

log = structlog.get_logger(__name__)

Attach = Callable[[], Awaitable[Attached]]
"""Resolve the thread for this turn's channel."""

_MOST_ASKED = 2
"""The prompt, and one more time after a recovery."""
_MOST_FAILURES = 10


class _GiveUp(Exception):
    """The turn cannot go on; ``error`` is what it ends with."""

    def __init__(self, error: HoldfastError) -> None:
        super().__init__(error.message)
        self.error = error


class TurnRun:
    """The work on one turn. ``run`` is one task; the other methods are called from outside, meanwhile."""

    def __init__(self, tools: Tools, files: ThreadFileService, lease: Lease, turn: TurnRow, attach: Attach) -> None:
        self._tools = tools
        self._files = files
        self._lease = lease
        self._turn = turn
        self._attach = attach
        self._attached: Attached | None = None
        self._last: Attached | None = None
        """The same, also while it is being brought back."""
        self._quieted = False
        self._heard = False
        """Whether the agent itself has said that the turn is over."""
        self._aborting = self._overtime = False
        self._until_aborted = UntilAborted()
        self._following: asyncio.Timeout | None = None
        self._quota = TurnQuota(tools, lease.thread_id)
        self._failures = self._stuck = 0
        """How often it failed: in all, and since something was last heard of it."""
        self._attachments = Attachments(tools, files, lease, turn.id)
        self._steering = Steering(tools, self._attachments, turn)
        self._closing = TurnEnd(tools, lease, turn.id)
        self.on_accepted: Callable[[], None] = lambda: None
        """Called when it can be steered."""
        self.questions = Questions(self._answer, seconds=tools.settings.question_seconds, clock=tools.clock)

    @property
    def turn(self) -> TurnRow:
        return self._turn

    @property
    def attached(self) -> Attached | None:
        """The agent that it talks to; None while that is being brought."""
        return self._attached

    @property
    def idle(self) -> IdlePolicy | None:
        """When its thread goes to sleep; None where that was never found out."""
        if self._last is None:
            return None
        row = self._last.thread
        return options.from_json(row.settings).idle or self._tools.settings.idle_of(row.platform)

    @property
    def was_asked(self) -> bool:
        """The agent may be at work on it."""
        return self._turn.accepted or self._turn.state != TurnState.PREPARING

    @property
    def can_be_steered(self) -> bool:
        """Its agent is known, can take a message into a running turn, and has taken up this one."""
        found, turn = self._attached, self._turn
        able = found is not None and found.agent.abilities.steer and not self._aborting
        return able and turn.accepted and turn.state != TurnState.COLLECTING

    async def run(self) -> None:
        """To the end, which is written. Only a lost lease, or cancellation, leaves it as it is, for somebody else."""
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
                log.exception("turn.bug", thread_id=self._lease.thread_id, turn_id=self._turn.id)
                await self._end_with(HoldfastError("something unexpected happened; the daemon's log has it"))
            finally:
                await self.questions.close()

    async def _recall(self) -> None:
        """What a predecessor knew: open questions, and messages that were to go into the turn."""
        kinds = [Kind.QUESTION, Kind.QUESTION_CLOSED]
        asked = await retry_write(
            lambda: self._tools.store.thread_events.of_turn(self._turn.id, kinds=kinds), self._tools.sleep
        )
        self.questions.note((event.kind, event.data) for event in asked)
        if self._turn.accepted:
            await self._steering.recall()

    async def _try(self) -> bool:
        """Whether it has ended; False if it is worth another try."""
        try:
            await self._go()
        except (StaleRow, ThreadNotFound):
            raise
        except Aborted:
            await self._end(StopReason.CANCELED)
        except HoldfastError as error:
            self._attached = None
            if self._aborting:
                await self._end(StopReason.CANCELED)
                return True
            self._failures, self._stuck = self._failures + 1, self._stuck + 1
            if self._stuck > 1 or self._failures > _MOST_FAILURES:
                raise _GiveUp(error) from error
            log.warning("sandbox.prompt.recoverable_fail", **self._about(error))
            return False
        return True

    async def _go(self) -> None:
        found = await self._prepare()
        self._attached = self._last = found
        if await self._must_ask(found):
            prompt = await self._until_aborted.do(self._prompt(found))
            if prompt is None:
                self._attached = None
                await self._go()
                return
            await self._ask(found, prompt)
        self.on_accepted()
        if self._aborting:
            await self._tell_abort(found)
        async with self._steering.delivering(found):
            await self._follow(found)

    # -- the prompt --------------------------------------------------------------------------------------------------

    async def _prepare(self) -> Attached:
        """Make the agent ready and return it."""
        try:
            return await (self._attach() if self.was_asked else self._until_aborted.do(self._listen_and_attach()))
        except (StaleRow, ThreadNotFound):
            raise
        except HoldfastError as error:  # it was tried for long enough
            raise _GiveUp(error) from error

    async def _listen_and_attach(self) -> Attached:
        await self._attachments.listen(self._turn.attachments)
        return await self._attach()

    async def _must_ask(self, found: Attached) -> bool:
        turn = self._turn
        same = turn.agent_session_id == found.session
        if turn.accepted:
            if not same:
                raise _GiveUp(SandboxLost(f"the agent was lost in the middle of the turn: {found.why or 'it is gone'}"))
            return False
        if turn.state == TurnState.PREPARING:
            self._check_asked()
            return True
        if not same:
            raise _GiveUp(
                SandboxLost(
                    f"it is not known whether the agent had begun when it was lost: {found.why or 'it is gone'}"
                )
            )
        if await found.agent.accepted(found.place, found.session, turn.id):
            await self._note(state=TurnState.RUNNING, accepted=True)
            return False
        self._check_asked()
        return True

    async def _prompt(self, found: Attached) -> Prompt | None:
        """What it is asked; None once, if the agent had to be stopped and must be brought back."""
        before, self._quieted = self._quieted, True
        if not before and not await stop_leftovers(self._tools, found, self._turn):
            return None
        turn = self._turn
        text, paths = await self._attachments.bring(found.place.session_id, turn.prompt, turn.attachments)
        return Prompt(turn.id, text, paths, turn.model or options.from_json(found.thread.settings).model)

    def _check_asked(self) -> None:
        if self._turn.attempts >= _MOST_ASKED:
            raise _GiveUp(AgentFailed("the agent did not take the prompt up, also when it was asked again"))

    async def _ask(self, found: Attached, prompt: Prompt) -> None:
        turn = self._turn
        if self._aborting:
            raise Aborted
        if turn.attempts:
            self._tools.metrics.prompt_retries.inc()
        await self._note(state=TurnState.PROMPTED, agent_session_id=found.session, attempt=True)
        try:
            await found.agent.prompt(found.place, found.session, prompt)
        except (AgentDown, AgentSessionMissing):
            await self._note(state=TurnState.PREPARING)  # certainly not accepted
            raise
        await self._note(state=TurnState.RUNNING, accepted=True)
        log.info("sandbox.prompt.ok", thread_id=turn.thread_id, turn_id=turn.id, attempts=self._turn.attempts)

    async def _note(
        self,
        *,
        state: TurnState,
        accepted: bool | None = None,
        agent_session_id: str | None = None,
        attempt: bool = False,
    ) -> None:
        self._turn = await retry_write(
            lambda: self._tools.store.turns.note(
                self._lease,
                self._turn.id,
                state=state,
                accepted=accepted,
                agent_session_id=agent_session_id,
                attempt=attempt,
            ),
            self._tools.sleep,
        )

    # -- its events --------------------------------------------------------------------------------------------------

    async def _follow(self, found: Attached) -> None:
        settings = self._tools.settings
        limit = settings.abort_seconds if self._aborting else settings.turn_seconds
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

    async def _too_long(self, found: Attached) -> None:
        """The time of the turn, or of its abort, is up."""
        if not self._aborting:
            log.warning("turn.overtime", thread_id=self._lease.thread_id, turn_id=self._turn.id)
            self._aborting = self._overtime = True
            await self._tell_abort(found)
            await self._follow(found)
            return
        log.warning("turn.abort.ignored", thread_id=self._lease.thread_id, turn_id=self._turn.id, next="agent stopped")
        await self._end_aborted()

    async def _read(self, found: Attached) -> None:
        source = found.agent.events(found.place, found.session, self._turn.id, Cursor(self._turn.cursor))
        paced = batches(source, may_wait=tool_pace.may_wait, seconds=tool_pace.SECONDS)
        async with contextlib.aclosing(paced) as stream:
            async for batch in stream:
                last = await self._keep([in_words(told) for told in batch])
                if last is not None:
                    await self._finish(found, last)
                    return
        raise AgentFailed("the agent's events ended in the middle of the turn")

    async def _keep(self, batch: Sequence[AgentEvent]) -> AgentEvent | None:
        """Store what was told, with the cursor behind it; returns the finalizing one, which is stored at the end."""
        news = tool_pace.condensed([told for told in batch if told.event.kind is not Kind.FINALIZE])
        if news:
            self._stuck = 0
            try:
                self._quota.count(news)
            except AgentFailed as error:
                raise _GiveUp(error) from error
            events = [self.questions.complete(told.event) for told in news]
            after = self._turn.cursor
            self._turn = await retry_write(
                lambda: self._tools.store.turns.advance(
                    self._lease,
                    self._turn.id,
                    after=after,
                    cursor=news[-1].cursor,
                    events=events,
                    state=TurnState.RUNNING,
                ),
                self._tools.sleep,
            )
            self.questions.note((event.kind, event.data) for event in events)
            await retry_write(lambda: self._quota.keep(len(events)), self._tools.sleep)
        return next((told for told in batch if told.event.kind is Kind.FINALIZE), None)

    async def _finish(self, found: Attached, last: AgentEvent) -> None:
        self._heard = True
        if self._overtime:
            await self._end_aborted()
            return
        await self._note(state=TurnState.COLLECTING)
        seconds = self._tools.settings.collect_seconds
        files = await self._files.collect_in_time(found.place.session_id, self._turn, seconds)
        trouble = [error_event(one.code, f"new files could not be fetched: {one.message}") for one in files.trouble]
        trouble += await self._steering.close(found)
        self._turn = await self._closing.write(
            last.event, events=trouble, artifacts=[row.id for row in files.kept.values()], cursor=last.cursor
        )

    # -- its end -----------------------------------------------------------------------------------------------------

    async def _end_with(self, error: HoldfastError) -> None:
        log.error("sandbox.prompt.fatal_fail", **self._about(error))
        await self._end(StopReason.ERROR, error)

    def _about(self, error: HoldfastError) -> dict[str, str]:
        ids = {"thread_id": self._lease.thread_id, "turn_id": self._turn.id}
        return {**ids, "code": error.code, "error": error.message}

    async def _end_aborted(self) -> None:
        if self._overtime:
            hours = self._tools.settings.turn_seconds / 3600
            await self._end(StopReason.ERROR, AgentFailed(f"the turn was aborted after {hours:g} hours"))
        else:
            await self._end(StopReason.CANCELED)

    async def _end(self, reason: StopReason, error: HoldfastError | None = None) -> None:
        if self._turn.accepted:
            await self._note(state=TurnState.COLLECTING)  # the store takes no more messages into it
        events = await self._steering.close(self._last)
        if self._last is not None and self._turn.state != TurnState.PREPARING and not self._heard:
            await silence(self._tools, self._last, self._turn.id)
        self._turn = await self._closing.write_own(reason, error, events)

    # -- from outside ------------------------------------------------------------------------------------------------

    async def abort(self) -> None:
        """End it soon: at once if the agent was not asked yet, else when the agent says so, or has had its time."""
        self._aborting = True
        self._until_aborted.abort()
        if self._following is not None and self._attached is not None:
            hurry(self._following, self._tools.settings.abort_seconds)
            await self._tell_abort(self._attached)

    async def _tell_abort(self, found: Attached) -> None:
        try:
            await found.agent.abort(found.place, found.session, self._turn.id)
        except HoldfastError as error:  # its time runs all the same
            log.warning("turn.abort.failed", turn_id=self._turn.id, code=error.code, error=error.message)

    async def answer(self, question_id: str, answer: str) -> None:
        """``AgentDown`` where the agent is being brought back: try again."""
        await self._answer(question_id, answer)

    async def _answer(self, question_id: str, answer: str) -> None:
        found = self._attached
        if found is None:
            raise AgentDown("the agent is being brought back; answer again in a moment")
        await found.agent.answer(found.place, found.session, question_id, answer)

    async def steer(self, message: MessageRow) -> None:
        """Hand over a message that is in this turn now."""
        self._steering.add(message)
        if self._attached is not None:
            await self._steering.deliver(self._attached)
