"""Of a tool's output that is told again and again, the last of what has come together."""

from holdfast.agents.base import Cursor, Told
from holdfast.protocol.turn_events import Kind, TurnEvent
from holdfast.threads.tool_pace import condensed


def tool(number: int, name: str, state: str) -> Told:
    data = {"message_id": "m", "tool_id": name, "name": "bash", "state": state, "output": str(number)}
    return Told(Cursor(str(number)), TurnEvent(Kind.TOOL_UPDATE, data))


def test_only_what_is_said_again_is_left_out() -> None:
    text = Told(Cursor("4"), TurnEvent(Kind.TEXT_DELTA, {"message_id": "m", "part_id": "p", "text": "x"}))
    batch = [
        tool(0, "a", "pending"),
        tool(1, "a", "running"),
        tool(2, "b", "running"),
        tool(3, "a", "running"),
        text,
        tool(5, "a", "running"),
        tool(6, "a", "completed"),
        tool(7, "b", "running"),
    ]
    assert [told.cursor for told in condensed(batch)] == ["0", "4", "5", "6", "7"]
    assert condensed([]) == []
