"""Reads a turn's events, from its beginning or from where another reader was cut off.

All events come from the agent's output, which the runner keeps. A reader goes through it from the turn's first line and
skips the events before its cursor. The agent's requests are answered on the way, once each, through the journal.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

from holdfast.agents.acp.mapper import AcpMapper, Ended, Refuse, Step, Withdrawn
from holdfast.agents.acp.permission import ALLOW, CANCELED, DENY, PermissionRequest
from holdfast.agents.acp.position import BEGINNING, END, Position, position_of
from holdfast.agents.acp.turn import AcpTurn
from holdfast.agents.base import AgentEvent, Cursor
from holdfast.agents.permissions import Action, decide, shown
from holdfast.agents.supervisor.lines import OutputLine
from holdfast.agents.supervisor.output import OutputItem
from holdfast.agents.supervisor.record import Recording
from holdfast.concurrency import cancel_and_wait, seen
from holdfast.errors import AgentDown, HoldfastError
from holdfast.sessions.use.processes import ProcessView
from holdfast.vocabulary.turn_events import Kind, StopReason, TurnEvent


class Answered:
    """A question may have been answered."""


_NO_MORE: Any = object()
_OPTIONS = {Action.ALLOW: ALLOW, Action.DENY: DENY}


class Reader:
    """One reader of one turn. ``alive`` raises ``AgentDown`` if the turn's process does not answer."""

    def __init__(self, turn: AcpTurn, after: Cursor, quiet: float, alive: Callable[[], Awaitable[None]]) -> None:
        self._turn = turn
        self._quiet = quiet
        self._alive = alive
        self._mapper: AcpMapper = turn.mapper()
        self._position = position_of(after)
        self._open: dict[int, PermissionRequest] = {}
        self._withdrawn: set[int] = set()
        self._answers = turn.supervisor.journal("answers")
        self._all = Recording()  # also what is left out here, since it was told to another reader
        self.ended = False

    async def read(self) -> AsyncGenerator[AgentEvent, None]:
        """Yield events to the end of the turn. Raises ``AgentDown`` if the process ends, or stops answering, before."""
        for told in self._number(BEGINNING, self._mapper.begin()):
            yield told
        delivery = self._turn.delivery
        place = self._turn.place
        following = self._turn.supervisor.follow(place, delivery.process_id, delivery.output, self._quiet)
        lost, last = 0, END
        async with contextlib.aclosing(self._or_answer(following)) as items:
            async for item in items:
                if item is None or isinstance(item, Answered):
                    for told in await self._close_questions(self._position.line, final=False):
                        yield told
                match item:
                    case int():
                        lost += item
                    case None:
                        await self._silence()
                    case ProcessView():
                        last = item.written
                    case OutputLine():
                        if lost and item.start > self._position.line:
                            yield self._gap(item.start)
                        lost = 0
                        async with contextlib.aclosing(self._line(item)) as events:
                            async for told in events:
                                yield told
                        if self.ended:
                            return
        async with contextlib.aclosing(self._end_after_death(last)) as events:
            async for told in events:
                yield told

    async def _or_answer(self, items: AsyncGenerator[OutputItem, None]) -> AsyncGenerator[OutputItem | Answered, None]:
        """Yield the same items, and ``Answered`` when a question may have been answered: the agent may stay silent."""
        known = self._answers.count
        async with contextlib.aclosing(items):
            while True:
                coming = asyncio.ensure_future(anext(items, _NO_MORE))
                try:
                    while self._open and await self._is_answered(coming, known):
                        known = self._answers.count
                        yield Answered()
                    item = await coming
                finally:
                    await cancel_and_wait(coming)
                if item is _NO_MORE:
                    return
                yield item

    async def _is_answered(self, coming: "asyncio.Future[OutputItem]", known: int) -> bool:
        """Wait for the next item or an answer, and return whether there is an answer."""
        given = seen(asyncio.ensure_future(self._answers.news(known)))
        try:
            waited: list[asyncio.Future[OutputItem] | asyncio.Future[None]] = [coming, given]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            given.cancel()
        return self._answers.count > known

    # -- a line --------------------------------------------------------------------------------------------------------

    async def _line(self, line: OutputLine) -> AsyncGenerator[AgentEvent, None]:
        steps = self._mapper.feed(line.message)
        if not steps:
            return
        for told in await self._close_questions(line.start, final=False):
            yield told
        events: list[TurnEvent] = []
        for step in steps:
            if isinstance(step, Ended):
                for told in await self._close_questions(line.start, final=True):
                    yield told
                events += self._mapper.finish(await self._outcome(step, line.start))
                self.ended = True
                await self._stop_if_broken(step.error)
            else:
                events += await self._take(step, line.start)
        news = list(self._number(line.start, events))
        if self.ended and self._all.whole:
            await self._turn.save_record(self._all.told)
        for told in news:
            yield told
        if self._withdrawn & self._open.keys():
            for told in await self._close_questions(self._position.line, final=False):
                yield told

    async def _take(self, step: Step, line: int) -> list[TurnEvent]:
        match step:
            case TurnEvent():
                return [step]
            case Refuse():
                if await self._turn.find_answer(step.number) is None:
                    with contextlib.suppress(AgentDown):
                        await self._turn.refuse(step)
            case PermissionRequest():
                return await self._decide(step, line)
            case Withdrawn() if step.number in self._open:
                self._withdrawn.add(step.number)
        return []

    async def _decide(self, asked: PermissionRequest, line: int) -> list[TurnEvent]:
        action = decide(self._turn.place.brief.permissions, asked.tool, asked.argument)
        if action is Action.ASK and await self._turn.always.covers(asked, line):
            action = Action.ALLOW
        if action is Action.ASK:
            self._open[asked.number] = asked
        if await self._turn.find_answer(asked.number) is None:
            with contextlib.suppress(AgentDown):  # it has died: that is told in its place
                if await self._turn.find_abort() is not None:
                    await self._turn.answer(asked, CANCELED)
                elif action in _OPTIONS:
                    await self._turn.answer(asked, _OPTIONS[action])
        if action is not Action.ASK:
            return []
        data = {
            "question_id": self._turn.question_id(asked.number),
            "text": f"May I use {asked.tool}? {shown(asked.argument)}",
            "options": asked.event_options(),
            "default": DENY,
            "tool_id": asked.tool_id,
        }
        return [TurnEvent(Kind.QUESTION, data)]

    async def _close_questions(self, line: int, *, final: bool) -> list[AgentEvent]:
        """Report the end of questions that were answered meanwhile; at the turn's end (``final``), of all."""
        closed: list[AgentEvent] = []
        for number in list(self._open):
            answer = await self._turn.find_answer(number)
            if answer is None and not final and number not in self._withdrawn:
                continue
            del self._open[number]
            if number in self._position.closed:
                self._all.lose()  # its position among the other events is not known here
                continue
            before = self._position
            events = before.events if before.line == line else 0
            self._position = Position(max(line, before.line), events, before.closed | {number})
            data = {"question_id": self._turn.question_id(number), "answer": answer or CANCELED}
            closed.append(AgentEvent(self._position.cursor, TurnEvent(Kind.QUESTION_CLOSED, data)))
            self._all.add(closed[-1])
        return closed

    async def _stop_if_broken(self, error: str) -> None:
        """Stop a process that can only fail from now on, so that the next turn gets a new one."""
        broken = self._mapper.quirks.broken
        if broken is not None and broken.search(error):
            with contextlib.suppress(HoldfastError):
                await self._turn.supervisor.stop(self._turn.place)

    async def _outcome(self, ended: Ended, line: int) -> Ended:
        """Find out how the turn ended: some agents answer a cancel with a normal end, or with an error."""
        aborted = await self._turn.find_abort()
        if aborted is not None and line >= aborted.output:
            return Ended(StopReason.CANCELED)
        return ended

    def _number(self, line: int, events: Iterable[TurnEvent]) -> Iterator[AgentEvent]:
        for number, event in enumerate(events):
            told = AgentEvent(Position(line, number + 1, self._position.closed).cursor, event)
            self._all.add(told)
            if not self._position.has(line, number):
                self._position = Position(line, number + 1, self._position.closed)
                yield told

    # -- no line -------------------------------------------------------------------------------------------------------

    def _gap(self, line: int) -> AgentEvent:
        self._all.lose()
        self._position = Position(line, 0, self._position.closed)
        message = "a part of what the agent said in this turn is lost: nobody read it in time"
        return AgentEvent(self._position.cursor, TurnEvent(Kind.ERROR, {"code": "agent_failed", "message": message}))

    async def _silence(self) -> None:
        await self._alive()
        if await self._turn.find_abort() is not None:  # perhaps it came before the agent had begun
            with contextlib.suppress(AgentDown):
                view = await self._turn.process()
                await self._turn.supervisor.write_to(self._turn.place, view.process_id, self._turn.cancel_line())

    def _rest_of(self, kept: Sequence[AgentEvent]) -> Sequence[AgentEvent]:
        """The recorded events after our position. If the position is not in the record, because questions were closed
        in another order, events are compared by their lines."""
        cursors = [told.cursor for told in kept]
        here = self._position
        if here.cursor in cursors:
            return kept[cursors.index(here.cursor) + 1 :]
        places = [position_of(cursor) for cursor in cursors]
        return [
            told
            for told, place in zip(kept, places, strict=True)
            if told.event.kind is not Kind.QUESTION_CLOSED and not here.has(place.line, place.events - 1)
        ]

    async def _end_after_death(self, line: int) -> AsyncGenerator[AgentEvent, None]:
        """End a turn whose process has ended first. If no other process has taken its place, raise ``AgentDown``."""
        for told in self._rest_of(await self._turn.load_record()) if line == END else ():
            self.ended = self.ended or told.event.kind is Kind.FINALIZE
            yield told
        if self.ended:
            return
        now = await self._turn.supervisor.find(self._turn.place)
        if now is None or not now.view.running or now.view.process_id == self._turn.delivery.process_id:
            raise AgentDown("the agent died in the middle of the turn; the next message starts it")
        for told in await self._close_questions(line, final=True):
            yield told
        reason = StopReason.ERROR if await self._turn.find_abort() is None else StopReason.CANCELED
        ended = Ended(reason, "the agent's process ended in the middle of the turn; what it said until then is kept")
        for told in self._number(line, self._mapper.finish(ended)):
            yield told
        self.ended = True
