"""Pi's words as turn events."""

import json
from collections.abc import Mapping, Sequence

from holdfast.agents.pi.mapper import OUTPUT_CHARACTERS, PiMapper
from holdfast.vocabulary.turn_events import Kind, TurnEvent, check

Record = Mapping[str, object]

TURN = "p-0123"
ACCEPTED: Record = {"id": TURN, "type": "response", "command": "prompt", "success": True}
BEGIN: Sequence[Record] = (ACCEPTED, {"type": "agent_start"}, {"type": "turn_start"})
SETTLED: Record = {"type": "agent_settled"}
CALL = {"toolCallId": "call_1", "toolName": "bash"}
ARGS = {"command": "echo one"}


def assistant() -> Record:
    return {"type": "message_start", "message": {"role": "assistant", "content": []}}


def done(stop: str, error: str | None = None) -> Record:
    return {"type": "message_end", "message": {"role": "assistant", "stopReason": stop, "errorMessage": error}}


def delta(text: str, *, kind: str = "text_delta", index: int = 0) -> Record:
    return {"type": "message_update", "assistantMessageEvent": {"type": kind, "contentIndex": index, "delta": text}}


def ended(text: str, *, error: bool) -> Record:
    return {"type": "tool_execution_end", **CALL, "result": result(text), "isError": error}


def result(text: str) -> Record:
    return {"content": [{"type": "text", "text": text}]}


def asked(about: Record) -> Record:
    title = f"holdfast-asked {json.dumps(about)}"
    return {"type": "extension_ui_request", "id": "dialog-1", "method": "select", "title": title}


def closed(about: Record) -> Record:
    message = f"holdfast-closed {json.dumps(about)}"
    return {"type": "extension_ui_request", "id": "x", "method": "notify", "message": message}


def told(*records: Record) -> list[TurnEvent]:
    mapper = PiMapper(TURN)
    return [check(event) for record in records for event in mapper.take(record)]


def of(kind: Kind, events: Sequence[TurnEvent]) -> list[Mapping[str, object]]:
    return [event.data for event in events if event.kind is kind]


def test_an_answer_with_a_thought() -> None:
    events = told(
        *BEGIN,
        assistant(),
        delta("hm", kind="thinking_delta"),
        delta("All ", index=1),
        delta("done.", index=1),
        done("stop"),
        SETTLED,
    )
    message = {"message_id": f"msg_{TURN}"}
    assert events[0] == TurnEvent(Kind.MESSAGE_CREATE, {**message, "role": "agent"})
    assert of(Kind.TEXT_DELTA, events) == [
        {**message, "part_id": "1.0", "text": "hm", "thought": True},
        {**message, "part_id": "1.1", "text": "All "},
        {**message, "part_id": "1.1", "text": "done."},
    ]
    assert [data["status"] for data in of(Kind.STATUS, events)] == ["thinking", "streaming", "idle"]
    assert events[-1] == TurnEvent(Kind.FINALIZE, {**message, "reason": "end_turn"})


def test_a_tool_from_its_call_to_its_output() -> None:
    call = {"type": "toolcall_end", "toolCall": {"id": "call_1", "name": "bash", "arguments": ARGS}}
    events = told(
        *BEGIN,
        assistant(),
        {"type": "message_update", "assistantMessageEvent": call},
        done("toolUse"),
        {"type": "tool_execution_start", **CALL, "args": ARGS},
        {"type": "tool_execution_update", **CALL, "partialResult": {"content": []}},
        {"type": "tool_execution_update", **CALL, "partialResult": result("one\n")},
        {"type": "tool_execution_update", **CALL, "partialResult": result("one\n")},
        ended("one\n", error=False),
    )
    tools = of(Kind.TOOL_UPDATE, events)
    assert [data["state"] for data in tools] == ["pending", "running", "running", "completed"]
    assert [data.get("output") for data in tools] == [None, None, "one\n", "one\n"]
    assert {str(data["tool_id"]) for data in tools} == {"call_1"}
    assert tools[-1]["exit_code"] == 0
    assert (tools[0]["input"], tools[0]["title"]) == (ARGS, "echo one")


def test_a_tool_that_fails_tells_its_exit_code() -> None:
    events = told(*BEGIN, ended("hi\n\nCommand exited with code 3", error=True))
    assert of(Kind.TOOL_UPDATE, events)[0]["state"] == "error"
    assert of(Kind.TOOL_UPDATE, events)[0]["exit_code"] == 3
    assert "exit_code" not in of(Kind.TOOL_UPDATE, told(*BEGIN, ended("Operation aborted", error=True)))[0]


def test_long_output_is_cut_to_the_newest() -> None:
    output = of(Kind.TOOL_UPDATE, told(*BEGIN, ended("a" * OUTPUT_CHARACTERS + "end", error=False)))[0]["output"]
    assert isinstance(output, str) and len(output) == OUTPUT_CHARACTERS and output.endswith("end")


def test_an_attempt_that_is_repeated_is_not_the_end() -> None:
    events = told(
        *BEGIN,
        assistant(),
        delta("we"),
        done("error", "529 overloaded"),
        {"type": "agent_end", "messages": [], "willRetry": True},
        {"type": "auto_retry_start", "attempt": 1, "maxAttempts": 3, "delayMs": 1, "errorMessage": "529 overloaded"},
        {"type": "agent_start"},
        assistant(),
        delta("well"),
        done("stop"),
        SETTLED,
    )
    assert [data["message"] for data in of(Kind.ERROR, events)] == ["529 overloaded"]
    assert [data["discards"] for data in of(Kind.ERROR, events)] == [["1.0"]]
    assert [data["part_id"] for data in of(Kind.TEXT_DELTA, events)] == ["1.0", "2.0"]
    assert of(Kind.MESSAGE_CREATE, events) == of(Kind.MESSAGE_CREATE, events)[:1]
    assert [data["reason"] for data in of(Kind.FINALIZE, events)] == ["end_turn"]


def test_a_model_that_fails() -> None:
    end = told(*BEGIN, assistant(), done("error", "401: no key"), SETTLED)[-1].data
    assert (end["reason"], end["error"]) == ("error", {"code": "agent_failed", "message": "401: no key"})


def test_a_prompt_that_is_refused_ends_at_once() -> None:
    refused = {"id": TURN, "type": "response", "command": "prompt", "success": False, "error": "No model selected"}
    events = told(refused)
    assert [event.kind for event in events] == [Kind.MESSAGE_CREATE, Kind.STATUS, Kind.FINALIZE]
    assert events[-1].data["error"] == {"code": "agent_failed", "message": "No model selected"}


def test_an_abort_is_canceled_whatever_pi_calls_it() -> None:
    mark = {"id": f"abort-{TURN}", "type": "response", "command": "clear_queue", "success": True}
    assert told(*BEGIN, mark, done("error", "This operation was aborted"), SETTLED)[-1].data["reason"] == "canceled"
    assert told(*BEGIN, done("aborted"), SETTLED)[-1].data["reason"] == "canceled"
    other = {**mark, "id": "abort-p-other"}
    assert told(*BEGIN, other, done("error", "x"), SETTLED)[-1].data["reason"] == "error"
    assert told(*BEGIN, mark, done("stop"), SETTLED)[-1].data["reason"] == "end_turn"  # it came too late


def test_a_question_and_its_answer() -> None:
    events = told(
        *BEGIN, asked({"call": "c", "text": "May I?"}), closed({"call": "c", "answer": "allow"}), done("stop"), SETTLED
    )
    (question,) = of(Kind.QUESTION, events)
    assert (question["question_id"], question["text"], question["default"]) == (f"{TURN}.c", "May I?", "deny")
    assert [option["id"] for option in question["options"]] == ["allow", "allow_always", "deny"]  # type: ignore[attr-defined]  # it is a list
    assert of(Kind.QUESTION_CLOSED, events) == [{"question_id": f"{TURN}.c", "answer": "allow"}]


def test_a_question_that_nobody_closed_is_closed_at_the_end() -> None:
    mapper = PiMapper(TURN)
    for record in (*BEGIN, asked({"call": "c", "text": "May I?"})):
        mapper.take(record)
    assert mapper.questions == {f"{TURN}.c": "dialog-1"}
    events = mapper.died()
    assert [event.kind for event in events] == [Kind.QUESTION_CLOSED, Kind.STATUS, Kind.FINALIZE]
    assert events[-1].data["error"] == {
        "code": "agent_down",
        "message": "the agent's process ended in the middle of the turn",
    }


def test_what_is_no_part_of_it_does_no_harm() -> None:
    strange: list[Record] = [
        {},
        {"type": "message_update"},
        {"type": "message_update", "assistantMessageEvent": {"type": "text_delta", "contentIndex": "x"}},
        {"type": "tool_execution_end", "toolCallId": 7, "result": None},
        {"type": "extension_ui_request", "id": "1", "method": "select", "title": "holdfast-asked [1"},
        {"type": "extension_ui_request", "id": "2", "method": "notify", "message": "holdfast-closed nonsense"},
        {"type": "from_the_future", "data": [1]},
        {"type": "response", "id": "somebody", "command": "get_state", "success": True},
    ]
    assert told(*BEGIN, *strange, done("stop"), SETTLED, SETTLED, *BEGIN)[-1].kind is Kind.FINALIZE
    assert told(SETTLED, *strange[:1]) == []  # of the turn before
