"""Of a tool's output that is told again and again, the last of what has come together."""

from holdfast.agents.base import AgentEvent, Cursor
from holdfast.threads.turns.batches import condense
from holdfast.vocabulary.turn_events import Kind, TurnEvent


def tool(number: int, name: str, state: str) -> AgentEvent:
    data = {"message_id": "m", "tool_id": name, "name": "bash", "state": state, "output": str(number)}
    return AgentEvent(Cursor(str(number)), TurnEvent(Kind.TOOL_UPDATE, data))


def test_only_what_is_said_again_is_left_out() -> None:
    text = AgentEvent(Cursor("4"), TurnEvent(Kind.TEXT_DELTA, {"message_id": "m", "part_id": "p", "text": "x"}))
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
    assert [told.cursor for told in condense(batch)] == ["0", "4", "5", "6", "7"]
    assert condense([]) == []


def word(number: int, text: str, part: str = "p", **more: object) -> AgentEvent:
    data = {"message_id": "m", "part_id": part, "text": text, **more}
    return AgentEvent(Cursor(str(number)), TurnEvent(Kind.TEXT_DELTA, data))


def test_words_of_one_text_that_come_together_are_one_event() -> None:
    batch = [
        word(0, "one "),
        word(1, "two"),
        word(2, "hm", thought=True),
        word(3, "three", "q"),
        tool(4, "a", "completed"),
        word(5, "x" * 3000, "q"),
        word(6, "y" * 1000, "q"),
        word(7, "z", "q"),
    ]
    joined = condense(batch)
    assert [told.cursor for told in joined] == ["1", "2", "3", "4", "6", "7"]
    assert [told.event.data.get("text") for told in joined][:3] == ["one two", "hm", "three"]
    assert joined[1].event.data["thought"] is True
