"""Reads one turn for all readers of this daemon, saves a record of it, and ends the record of a server that died."""

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncGenerator, Sequence

from holdfast.agents.acp.permission import CANCELED
from holdfast.agents.acp.position import Position, position_of
from holdfast.agents.base import AgentEvent, Cursor, Place
from holdfast.agents.sandbox_agent.wire import LAST
from holdfast.agents.supervisor import record
from holdfast.concurrency import Broadcast
from holdfast.errors import AgentDown, HoldfastError
from holdfast.vocabulary.turn_events import Kind, StopReason, ToolState, TurnEvent


class Scribe:
    """Reads ``events``, the turn from its beginning, and keeps them until the turn is over, even if the server dies."""

    def __init__(self, place: Place, directory: str, name: str, events: AsyncGenerator[AgentEvent, None]) -> None:
        self._place = place
        self._directory = directory
        self._name = name
        self._told: list[AgentEvent] = []
        self._error: HoldfastError | None = None
        self._over = False
        self._changed = Broadcast()
        # In a fresh context: it works for all readers, so its log lines must not have the id of the first request.
        self.task = asyncio.create_task(self._write_down(events), context=contextvars.Context())
        self.task.add_done_callback(lambda _task: self._end())

    async def _write_down(self, events: AsyncGenerator[AgentEvent, None]) -> None:
        try:
            async with contextlib.aclosing(events):
                async for told in events:
                    self._told.append(told)
                    self._changed.send()
        except HoldfastError as error:  # it died: then this much is known
            self._error = error
        self._end()
        if self._told:
            with contextlib.suppress(HoldfastError):
                await record.save(self._place, self._directory, self._name, self._told)

    def _end(self) -> None:
        if self.task.done() and not self._over:  # it was cancelled, perhaps before it had begun
            self._error = AgentDown("nobody reads along any more; read on")
        self._over = True
        self._changed.send()

    async def read(self, after: Cursor) -> AsyncGenerator[AgentEvent, None]:
        """Yield the events after that cursor as they come. Raises the error that ended the turn early, if any."""
        number = len(self._told) - len(after_cursor(self._told, after)) if after else 0
        while True:
            while number < len(self._told):
                number += 1
                yield self._told[number - 1]
            if self._over:
                break
            await self._changed.wait()
        if self._error is not None:
            raise type(self._error)(self._error.message)


def _order(cursor: Cursor) -> tuple[int, int, int]:
    at = position_of(cursor)
    return at.line, at.events, len(at.closed)


def after_cursor(known: Sequence[AgentEvent], cursor: Cursor) -> list[AgentEvent]:
    """Return the recorded events after that cursor."""
    return [told for told in known if not cursor or _order(told.cursor) > _order(cursor)]


def ending(known: Sequence[AgentEvent], reason: StopReason, message_id: str) -> list[AgentEvent]:
    """Return the last events of a turn whose server died: they close all questions and tools that are open."""
    tools: dict[object, TurnEvent] = {}
    questions: dict[object, TurnEvent] = {}
    for told in known:
        event = told.event
        if event.kind is Kind.TOOL_UPDATE:
            tools[event.data["tool_id"]] = event
        elif event.kind is Kind.QUESTION:
            questions[event.data["question_id"]] = event
        elif event.kind is Kind.QUESTION_CLOSED:
            questions.pop(event.data["question_id"], None)
    events = [TurnEvent(Kind.QUESTION_CLOSED, {"question_id": name, "answer": CANCELED}) for name in questions]
    over = (ToolState.COMPLETED, ToolState.ERROR)
    events += [
        TurnEvent(Kind.TOOL_UPDATE, {**tool.data, "state": ToolState.ERROR.value})
        for tool in tools.values()
        if tool.data["state"] not in over
    ]
    end: dict[str, object] = {"message_id": message_id, "reason": reason.value}
    if reason is StopReason.ERROR:
        message = "the agent's process ended in the middle of the turn; what it said until then is kept"
        end["error"] = {"code": "agent_failed", "message": message}
    closed = position_of(known[-1].cursor).closed
    return [
        AgentEvent(Position(LAST, number, closed).cursor, event)
        for number, event in enumerate([*events, TurnEvent(Kind.FINALIZE, end)], start=1)
    ]
