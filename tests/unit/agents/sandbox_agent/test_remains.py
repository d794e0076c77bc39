"""What is left of a turn whose server died."""

from holdfast.agents.acp.position import Position
from holdfast.agents.base import START, AgentEvent
from holdfast.agents.sandbox_agent.scribe import after_cursor, ending
from holdfast.vocabulary.turn_events import Kind, StopReason, TurnEvent

BEGUN = AgentEvent(Position(-1, 1).cursor, TurnEvent(Kind.MESSAGE_CREATE, {"message_id": "m", "role": "agent"}))
TEXT = AgentEvent(Position(5, 1).cursor, TurnEvent(Kind.TEXT_DELTA, {"message_id": "m", "part_id": "1", "text": "a"}))


def tool(line: int, name: str, state: str) -> AgentEvent:
    data = {"message_id": "m", "tool_id": name, "name": "bash", "state": state}
    return AgentEvent(Position(line, 1).cursor, TurnEvent(Kind.TOOL_UPDATE, data))


ASKED = AgentEvent(Position(9, 1).cursor, TurnEvent(Kind.QUESTION, {"question_id": "q", "text": "May I?"}))
CLOSED = AgentEvent(
    Position(10, 0, frozenset({1})).cursor, TurnEvent(Kind.QUESTION_CLOSED, {"question_id": "q", "answer": "deny"})
)


def test_who_reads_on_is_told_the_rest() -> None:
    known = [BEGUN, TEXT, tool(6, "t", "running"), ASKED, CLOSED]
    for count, cursor in enumerate([START, *(told.cursor for told in known)]):
        assert after_cursor(known, cursor) == known[count:]
    assert after_cursor(known, Position(7, 3).cursor) == known[3:]  # between two of them


def test_what_was_open_is_closed_at_the_end() -> None:
    known = [BEGUN, TEXT, tool(6, "done", "completed"), tool(7, "t", "pending"), tool(8, "t", "running"), ASKED]
    rest = ending(known, StopReason.ERROR, "m")
    assert [told.event.kind for told in rest] == [Kind.QUESTION_CLOSED, Kind.TOOL_UPDATE, Kind.FINALIZE]
    assert (rest[1].event.data["tool_id"], rest[1].event.data["state"]) == ("t", "error")
    assert rest[-1].event.data["reason"] == "error" and "error" in rest[-1].event.data
    cursors = [told.cursor for told in [*known, *rest]]
    assert len(set(cursors)) == len(cursors)
    assert after_cursor([*known, *rest], ASKED.cursor) == rest


def test_an_abort_has_no_error() -> None:
    (only,) = ending([BEGUN, ASKED, CLOSED], StopReason.CANCELED, "m")
    assert only.event.data == {"message_id": "m", "reason": "canceled"}
