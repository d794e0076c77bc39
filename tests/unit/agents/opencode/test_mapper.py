"""What OpenCode's recorder writes, as turn events."""

from collections.abc import Mapping, Sequence

import pytest

from holdfast.agents.opencode.mapper import REPLIES, OpenCodeMapper, decision, grants
from holdfast.agents.permissions import Action, parse
from holdfast.vocabulary.turn_events import Kind, TurnEvent, check

JsonObject = Mapping[str, object]
PROMPT = {"type": "prompt", "message": "msg_1"}
SETTLED = {"type": "settled", "aborted": False}


def events(*records: JsonObject, rules: Sequence[str] = ()) -> list[TurnEvent]:
    mapper = OpenCodeMapper("m", parse(rules))
    return [check(event) for record in records for event in mapper.feed(record)]


def end(*records: JsonObject) -> Mapping[str, object]:
    told = events(PROMPT, *records)
    assert told[-1].kind is Kind.FINALIZE
    assert [event.kind for event in told].count(Kind.FINALIZE) == 1
    return told[-1].data


def of(kind: Kind, told: Sequence[TurnEvent]) -> list[Mapping[str, object]]:
    return [event.data for event in told if event.kind is kind]


def test_text_and_thoughts_in_their_order() -> None:
    told = events(
        PROMPT,
        {"type": "delta", "part": "prt_1", "thought": True, "text": "hm"},
        {"type": "delta", "part": "prt_2", "text": "hello "},
        {"type": "delta", "part": "prt_2", "text": "you"},
        SETTLED,
    )
    assert [(event.kind, event.data.get("text")) for event in told] == [
        (Kind.MESSAGE_CREATE, None),
        (Kind.STATUS, None),
        (Kind.TEXT_DELTA, "hm"),
        (Kind.STATUS, None),
        (Kind.TEXT_DELTA, "hello "),
        (Kind.TEXT_DELTA, "you"),
        (Kind.FINALIZE, None),
    ]
    assert [data["status"] for data in of(Kind.STATUS, told)] == ["thinking", "streaming"]
    assert [data.get("thought") for data in of(Kind.TEXT_DELTA, told)] == [True, None, None]
    assert told[-1].data == {"message_id": "m", "reason": "end_turn"}


def test_a_tool_from_pending_to_its_exit_code() -> None:
    base = {"type": "tool", "id": "call_1", "name": "bash"}
    running = {**base, "state": "running", "input": {"command": "ls"}, "output": "a\n"}
    told = events(
        {**base, "state": "pending", "input": {}},
        running,
        running,
        {**base, "state": "completed", "input": {"command": "ls"}, "output": "a\nb\n", "exit": 3, "title": "ls"},
    )
    updates = of(Kind.TOOL_UPDATE, told)
    assert [data["state"] for data in updates] == ["pending", "running", "error"]
    assert updates[-1]["output"] == "a\nb\n"
    assert updates[-1]["exit_code"] == 3


@pytest.mark.parametrize(
    ("records", "reason", "code"),
    [
        ([{"type": "ended", "finish": "stop"}, SETTLED], "end_turn", None),
        ([{"type": "error", "error": {"name": "APIError", "message": "no", "status": 401}}, SETTLED], "error", "model"),
        ([{"type": "error", "error": {"name": "UnknownError", "message": "oops"}}, SETTLED], "error", "agent_error"),
        ([{"type": "error", "error": {"name": "MessageAbortedError"}}, SETTLED], "canceled", None),
        ([{"type": "settled", "aborted": True}], "canceled", None),
        ([{"type": "ended", "finish": "tool-calls"}, {"type": "settled", "aborted": True}], "canceled", None),
        ([{"type": "ended", "finish": "stop"}, {"type": "settled", "aborted": True}], "end_turn", None),
        ([{"type": "error", "error": {"name": "E"}}, {"type": "ended", "finish": "stop"}, SETTLED], "end_turn", None),
        ([{"type": "ended", "finish": "stop", "error": {"name": "E"}}, SETTLED], "error", "agent_error"),
        ([{"type": "settled", "died": True}], "error", "agent_died"),
        ([{"type": "settled", "died": True, "aborted": True}], "canceled", None),
        ([{"type": "settled", "lost": True}], "error", "prompt_lost"),
    ],
)
def test_every_way_to_end(records: Sequence[JsonObject], reason: str, code: str | None) -> None:
    data = end(*records)
    assert data["reason"] == reason
    error = data.get("error")
    assert (error is None) if code is None else (isinstance(error, dict) and error["code"].startswith(code))


def test_an_error_of_the_model_has_its_status() -> None:
    error = end({"type": "error", "error": {"name": "APIError", "message": "no credit", "status": 402}}, SETTLED)[
        "error"
    ]
    assert error == {"code": "model_error", "message": "no credit (status 402)", "status": 402}


def test_a_retry_is_seen() -> None:
    told = events(PROMPT, {"type": "retry", "attempt": 2, "message": "Rate limit", "next": 1_700_000_000_500})
    assert of(Kind.ERROR, told) == [
        {"code": "model_retried", "message": "Rate limit", "attempt": 2, "retry_at": 1_700_000_000.5}
    ]


def test_what_an_attempt_said_that_is_made_again_is_no_part_of_the_answer() -> None:
    step, retry = {"type": "step", "snapshot": True}, {"type": "retry", "attempt": 1, "message": "cut"}
    said = [{"type": "delta", "part": part, "text": "so"} for part in ("p1", "p2", "p3")]
    told = events(PROMPT, step, said[0], step, said[1], retry, step, said[2], retry)
    assert [data["discards"] for data in of(Kind.ERROR, told)] == [["p2"], ["p3"]]


def test_nothing_comes_after_the_end() -> None:
    told = events(PROMPT, SETTLED, {"type": "delta", "part": "p", "text": "late"}, SETTLED)
    assert told[-1].kind is Kind.FINALIZE


@pytest.mark.parametrize("record", [{}, {"type": "delta"}, {"type": "tool", "id": 1}, {"type": "brand-new", "x": 1}])
def test_what_makes_no_sense_is_skipped(record: JsonObject) -> None:
    assert events(PROMPT, record, SETTLED) == events(PROMPT, SETTLED)


def test_a_title_is_no_longer_than_a_title() -> None:
    assert of(Kind.TITLE, events(PROMPT, {"type": "title", "title": "x" * 1000})) == [{"title": "x" * 200}]


ASKED = {"type": "asked", "id": "per_1", "permission": "bash", "patterns": ["git push"], "metadata": {"command": "x"}}


def test_a_permission_that_a_person_gives() -> None:
    told = events(PROMPT, ASKED, {"type": "replied", "id": "per_1", "reply": "once"}, rules=["ask bash:git push*"])
    (question,) = of(Kind.QUESTION, told)
    assert question["question_id"] == "per_1"
    assert question["default"] == "deny"
    assert isinstance(question["options"], list)
    assert [option["id"] for option in question["options"]] == ["allow", "allow_always", "deny"]
    assert of(Kind.QUESTION_CLOSED, told) == [{"question_id": "per_1", "answer": "allow"}]


def test_a_person_sees_all_that_is_asked_for() -> None:
    parts = {**ASKED, "patterns": ["echo hi", "git push"], "metadata": {}}
    whole = {**parts, "metadata": {"command": "echo hi && git push"}}
    told = [of(Kind.QUESTION, events(PROMPT, one, rules=["ask bash"]))[0]["text"] for one in (parts, whole)]
    assert told == ["May I use bash: echo hi, git push?", "May I use bash: echo hi && git push?"]


RULES = ["deny bash:*--force*", "ask bash:git push*", "ask bash:rm *"]


def test_what_is_allowed_for_good_is_not_asked_again() -> None:
    assert REPLIES["allow_always"] == "once", "or OpenCode would not ask about what is denied either"
    asked = {"type": "asked", "permission": "bash"}
    mapper = OpenCodeMapper("m", parse(RULES))
    lasting = sorted(grants(parse(RULES), "bash", ["git push"]))
    assert lasting == [("ask bash:git push*", "bash")]
    mapper.feed({**asked, "id": "per_1", "patterns": ["git push"]})
    told = mapper.feed({"type": "replied", "id": "per_1", "reply": "once", "always": [list(one) for one in lasting]})
    assert of(Kind.QUESTION_CLOSED, told) == [{"question_id": "per_1", "answer": "allow_always"}]
    assert mapper.feed({**asked, "id": "per_2", "patterns": ["git push origin"]}) == []
    assert mapper.feed({**asked, "id": "per_3", "patterns": ["git push --force"]}) == []
    assert mapper.decided == {"per_2": Action.ALLOW, "per_3": Action.DENY}
    assert len(mapper.feed({**asked, "id": "per_4", "patterns": ["git push", "rm x"]})) == 1, "for a part of it only"


def test_what_was_allowed_for_good_in_an_earlier_turn_comes_with_the_prompt() -> None:
    prompt = {**PROMPT, "always": [["ask bash:git push*", "bash"], "nonsense"]}
    assert of(Kind.QUESTION, events(prompt, ASKED, rules=["ask bash:git push*"])) == []
    assert len(of(Kind.QUESTION, events(prompt, ASKED, rules=["ask bash:git *"]))) == 1, "of another rule"


@pytest.mark.parametrize(("rule", "action"), [("allow bash", Action.ALLOW), ("deny bash:git *", Action.DENY)])
def test_a_permission_that_the_rules_decide(rule: str, action: Action) -> None:
    mapper = OpenCodeMapper("m", parse([rule]))
    assert mapper.feed(ASKED) == []
    assert mapper.decided == {"per_1": action}
    assert mapper.feed({"type": "replied", "id": "per_1", "reply": "once"}) == []
    assert mapper.decided == {}


def test_a_question_that_nobody_answered_is_closed_at_the_end() -> None:
    question = {"question": "Shall I?", "options": [{"label": "yes"}, {"label": "no"}]}
    told = events(PROMPT, {"type": "question", "id": "que_1", "questions": [question]}, {**SETTLED, "aborted": True})
    assert of(Kind.QUESTION, told)[0]["options"] == [{"id": "yes", "label": "yes"}, {"id": "no", "label": "no"}]
    assert [event.kind for event in told[-2:]] == [Kind.QUESTION_CLOSED, Kind.FINALIZE]


def test_the_strictest_rule_for_any_part_of_a_command_counts() -> None:
    rules = parse(["deny bash:rm *", "ask bash:git push*", "allow *"])
    assert decision(rules, "bash", ["ls && rm -r x", "ls", "rm -r x"]) is Action.DENY
    assert decision(rules, "bash", ["ls && git push", "ls", "git push"]) is Action.ASK
    assert decision(rules, "bash", ["ls"]) is Action.ALLOW
    assert decision(parse(["deny edit"]), "write", ["/etc/passwd"]) is Action.DENY
    assert decision(parse(["deny other:skill"]), "skill", ["anything"]) is Action.DENY


def test_title_plan_and_changed_files() -> None:
    told = events(
        {"type": "title", "title": "A talk"},
        {"type": "plan", "entries": [{"text": "one", "status": "pending"}]},
        {"type": "patch", "files": ["/workspace/a"]},
    )
    assert [event.data for event in told] == [
        {"title": "A talk"},
        {"entries": [{"text": "one", "status": "pending"}]},
        {"paths": ["/workspace/a"]},
    ]


def test_whether_it_could_be_taken_back() -> None:
    mapper = OpenCodeMapper("m")
    assert mapper.feed({"type": "step", "snapshot": True}) == []
    assert mapper.has_snapshots
    mapper.feed({"type": "step", "snapshot": False})
    assert not mapper.has_snapshots
