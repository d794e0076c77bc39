"""Reads a recorded turn on from a cursor, and makes an end for a turn whose server died."""

from collections.abc import Sequence

from holdfast.agents.acp.permission import CANCELED
from holdfast.agents.acp.position import Position, position_of
from holdfast.agents.base import AgentEvent, Cursor
from holdfast.agents.sandbox_agent.wire import LAST
from holdfast.vocabulary.turn_events import Kind, StopReason, ToolState, TurnEvent


def _order(cursor: Cursor) -> tuple[int, int, int]:
    at = position_of(cursor)
    return at.line, at.events, len(at.closed)


def after(known: Sequence[AgentEvent], cursor: Cursor) -> list[AgentEvent]:
    return [told for told in known if not cursor or _order(told.cursor) > _order(cursor)]


def ending(known: Sequence[AgentEvent], reason: StopReason, message_id: str) -> list[AgentEvent]:
    """The last events of a turn whose server died: they close all questions and tools that are open."""
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
