"""What agents say over ACP, as a turn's events. The samples have the shapes that the real ones were seen to use."""

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from holdfast.agents.acp.mapper import AcpMapper, Ended, Quirks, Refuse, Step
from holdfast.agents.acp.permission import PermissionRequest
from holdfast.agents.acp.presets import PRESETS
from holdfast.agents.supervisor.lines import BROKE, CUT, WENT_ON, JsonObject
from holdfast.vocabulary.turn_events import Kind, StopReason, TurnEvent, check

SESSION = "ses_1"
REQUEST = "holdfast-p1"


def mapper(quirks: Quirks | None = None) -> AcpMapper:
    return AcpMapper(SESSION, REQUEST, "msg_1", quirks or Quirks())


def update(**fields: object) -> Mapping[str, object]:
    return {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": SESSION, "update": fields}}


def text(said: str, kind: str = "agent_message_chunk") -> Mapping[str, object]:
    return update(sessionUpdate=kind, content={"type": "text", "text": said})


def answer(**result: object) -> Mapping[str, object]:
    return {"jsonrpc": "2.0", "id": REQUEST, "result": result}


def events(steps: list[Step]) -> list[TurnEvent]:
    return [check(step) for step in steps if isinstance(step, TurnEvent)]


def kinds(steps: list[Step]) -> list[str]:
    return [event.kind.value for event in events(steps)]


def test_a_turn_begins_and_ends_once() -> None:
    turn = mapper()
    assert [event.kind for event in turn.begin()] == [Kind.MESSAGE_CREATE, Kind.STATUS]
    steps = turn.feed(answer(stopReason="end_turn"))
    assert steps == [Ended(StopReason.END_TURN)]
    assert turn.finish(Ended(StopReason.END_TURN))[-1].data == {"message_id": "msg_1", "reason": "end_turn"}


def test_text_and_thoughts_are_parts_of_their_own() -> None:
    turn = mapper()
    told = [
        event.data
        for said in (text("a", "agent_thought_chunk"), text("b"), text("c"), text("d", "agent_thought_chunk"))
        for event in events(turn.feed(said))
        if event.kind is Kind.TEXT_DELTA
    ]
    assert [(data["text"], data.get("thought")) for data in told] == [
        ("a", True),
        ("b", None),
        ("c", None),
        ("d", True),
    ]
    parts = [data["part_id"] for data in told]
    assert parts[1] == parts[2] and len(set(parts)) == 3


def test_others_sessions_and_other_answers_are_nothing() -> None:
    turn = mapper()
    other = {"method": "session/update", "params": {"sessionId": "ses_2", "update": {"sessionUpdate": "plan"}}}
    assert turn.feed(other) == []
    assert turn.feed({"id": "another", "result": {"stopReason": "end_turn"}}) == []
    assert turn.feed({"nonsense": 1}) == []
    assert turn.feed(update(sessionUpdate="usage_update", used=1)) == []
    assert turn.feed(update(sessionUpdate="something_new", content=7)) == []


@pytest.mark.parametrize(
    ("lines", "output", "exit_code", "state"),
    [
        pytest.param(
            [
                {"sessionUpdate": "tool_call", "title": "bash", "kind": "execute", "status": "pending", "rawInput": {}},
                {"status": "in_progress", "title": "exit 3", "rawInput": {"command": "exit 3"}},
                {"status": "completed", "rawOutput": {"output": "(no output)", "metadata": {"exit": 3}}},
            ],
            "(no output)",
            3,
            "error",
            id="opencode",
        ),
        pytest.param(
            [
                {"sessionUpdate": "tool_call", "title": "ls", "kind": "execute", "status": "in_progress"},
                {
                    "status": "completed",
                    "content": [{"type": "content", "content": {"type": "text", "text": "```sh\ntail\n```\n"}}],
                    "rawOutput": {"aggregated_output": "head\ntail\n", "exit_code": 0},
                },
            ],
            "head\ntail\n",
            0,
            "completed",
            id="codex",
        ),
        pytest.param(
            [
                {"sessionUpdate": "tool_call", "title": "x", "kind": "execute", "status": "pending"},
                {"status": "in_progress", "_meta": {"terminal_output": {"data": "one\n"}}},
                {"status": "in_progress", "_meta": {"terminal_output": {"data": "two\n"}}},
                {
                    "status": "failed",
                    "_meta": {
                        "terminal_output": {"data": "\nCommand exited with code 4"},
                        "terminal_exit": {"exit_code": 1},
                    },
                },
            ],
            "one\ntwo\n\nCommand exited with code 4",
            4,
            "error",
            id="pi",
        ),
        pytest.param(
            [
                {"sessionUpdate": "tool_call", "title": "Terminal", "kind": "execute", "status": "pending"},
                {"rawInput": {"command": "false"}, "title": "false"},
                {
                    "status": "failed",
                    "rawOutput": "Exit code 1",
                    "content": [{"type": "content", "content": {"type": "text", "text": "```\nExit code 1\n```"}}],
                },
            ],
            "Exit code 1",
            1,
            "error",
            id="claude",
        ),
    ],
)
def test_a_tool_of_each_agent(lines: list[dict[str, object]], output: str, exit_code: int, state: str) -> None:
    turn = mapper()
    told: list[TurnEvent] = []
    for line in lines:
        line = {"sessionUpdate": "tool_call_update", "toolCallId": "t1", **line}
        told += [event for event in events(turn.feed(update(**line))) if event.kind is Kind.TOOL_UPDATE]
    assert {event.data["name"] for event in told} == {"bash"}
    states = [event.data["state"] for event in told]
    order = ["pending", "running", "completed", "error"]
    assert states[0] == "pending" and states == sorted(states, key=lambda one: order.index(str(one)))
    assert (told[-1].data["state"], told[-1].data.get("output")) == (state, output)
    assert told[-1].data.get("exit_code") == exit_code


def test_a_tool_that_skips_its_states_is_told_in_all_of_them() -> None:
    turn = mapper()
    steps = turn.feed(update(sessionUpdate="tool_call_update", toolCallId="t", status="completed", kind="edit"))
    assert [event.data["state"] for event in events(steps) if event.kind is Kind.TOOL_UPDATE] == [
        "pending",
        "running",
        "completed",
    ]
    again = turn.feed(update(sessionUpdate="tool_call_update", toolCallId="t", status="completed"))
    assert again == []


def test_what_is_said_twice_is_told_once() -> None:
    turn = mapper()
    line = update(sessionUpdate="tool_call_update", toolCallId="t", status="in_progress", title="x")
    assert turn.feed(line) != []
    assert turn.feed(line) == []


def test_a_tool_that_never_ended_ends_with_the_turn() -> None:
    turn = mapper()
    turn.feed(update(sessionUpdate="tool_call", toolCallId="t", status="in_progress", title="x"))
    last = turn.finish(Ended(StopReason.CANCELED))
    assert [(event.kind, event.data.get("state")) for event in last] == [
        (Kind.TOOL_UPDATE, "error"),
        (Kind.FINALIZE, None),
    ]


def test_a_permission_is_asked_for_with_what_the_tool_is() -> None:
    turn = mapper()
    steps = turn.feed(
        {
            "id": 7,
            "method": "session/request_permission",
            "params": {
                "sessionId": SESSION,
                "toolCall": {"toolCallId": "t", "kind": "execute", "title": "x", "rawInput": {"command": "rm -r a"}},
                "options": [
                    {"optionId": "always", "kind": "allow_always", "name": "Always"},
                    {"optionId": "once", "kind": "allow_once", "name": "Once"},
                    {"optionId": "no", "kind": "reject_once", "name": "No"},
                ],
            },
        }
    )
    assert kinds(steps) == ["message.part.tool-update"]
    asked = steps[-1]
    assert isinstance(asked, PermissionRequest)
    assert (asked.id, asked.number, asked.tool, asked.argument) == (7, 1, "bash", "rm -r a")
    assert [option["id"] for option in asked.event_options()] == ["allow", "allow_always", "deny"]
    chosen = [asked.outcome(one) for one in ("allow", "allow_always", "deny", "what?", "canceled")]
    options = [one["outcome"] for one in chosen]
    assert options == [
        {"outcome": "selected", "optionId": "once"},
        {"outcome": "selected", "optionId": "once"},
        {"outcome": "selected", "optionId": "no"},
        {"outcome": "selected", "optionId": "no"},
        {"outcome": "cancelled"},
    ]
    without = replace(asked, options=[("always", "allow_always"), ("no", "reject_once")])
    assert without.outcome("allow") == {"outcome": {"outcome": "cancelled"}}, "a yes for once is no yes for good"


def test_a_command_as_a_list_of_words_is_the_line_that_bash_is_given() -> None:
    turn = mapper()
    wanted = {"toolCallId": "t", "kind": "execute", "rawInput": {"command": ["/bin/bash", "-lc", "git push"]}}
    params = {"sessionId": SESSION, "toolCall": wanted, "options": []}
    asked = turn.feed({"id": 1, "method": "session/request_permission", "params": params})[-1]
    assert isinstance(asked, PermissionRequest) and asked.argument == "git push"


def test_a_request_that_nobody_knows_is_refused() -> None:
    turn = mapper()
    params = {"sessionId": SESSION, "path": "/etc/passwd"}
    assert turn.feed({"id": 3, "method": "fs/read_text_file", "params": params}) == [Refuse(1, 3, "fs/read_text_file")]


def test_plans_commands_and_titles() -> None:
    turn = mapper()
    plan = update(sessionUpdate="plan", entries=[{"content": "look", "status": "in_progress", "priority": "high"}])
    assert events(turn.feed(plan))[0].data == {"entries": [{"text": "look", "status": "in_progress"}]}
    assert turn.feed(plan) == []
    commands = update(
        sessionUpdate="available_commands_update", availableCommands=[{"name": "init", "description": "x"}]
    )
    assert events(turn.feed(commands))[0].data == {"commands": [{"name": "init", "description": "x"}]}
    title = update(sessionUpdate="session_info_update", title="About it")
    assert kinds(turn.feed(title)) == ["title"]
    assert turn.feed(title) == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ({"code": -32603, "message": "Internal error: no credit", "data": {"service": "session"}}, "no credit"),
        (
            {"code": -32603, "message": "Internal error", "data": {"message": '{"error": {"message": "on fire"}}'}},
            "on fire",
        ),
        ({"code": 401, "message": '{"error":{"message":"wrong key"}}'}, "wrong key"),
        ({"code": -32000, "message": "Authentication required"}, "Authentication required"),
        ("nonsense", "nonsense"),
    ],
)
def test_an_error_is_told_in_words(error: object, message: str) -> None:
    ended = mapper().feed({"id": REQUEST, "error": error})[0]
    assert isinstance(ended, Ended) and ended.reason is StopReason.ERROR
    assert message in ended.error


def test_codex_ends_well_and_says_its_error_as_text() -> None:
    turn = mapper(PRESETS["codex"].quirks)
    assert turn.feed(text("Model metadata for `m` not found. Defaulting to …")) == []
    turn.feed(text("unexpected status 402 Payment Required: no credit"))
    ended = turn.feed(answer(stopReason="end_turn"))[0]
    assert isinstance(ended, Ended) and ended.reason is StopReason.ERROR and "no credit" in ended.error


def test_codex_tells_of_an_error_beside_its_words() -> None:
    turn = mapper()
    turn.feed(update(sessionUpdate="session_info_update", _meta={"codex": {"threadStatus": {"type": "systemError"}}}))
    ended = turn.feed(answer(stopReason="end_turn"))[0]
    assert isinstance(ended, Ended) and ended.reason is StopReason.ERROR


def test_pi_hides_its_errors() -> None:
    turn = mapper(PRESETS["pi-acp"].quirks)
    assert turn.feed(text("Retrying (attempt 1/3, waiting 2s)...")) == []
    ended = turn.feed(answer(stopReason="end_turn"))[0]
    assert isinstance(ended, Ended) and ended.reason is StopReason.ERROR
    spoke = mapper(PRESETS["pi-acp"].quirks)
    spoke.feed(text("hello"))
    assert spoke.feed(answer(stopReason="end_turn")) == [Ended(StopReason.END_TURN)]


def test_an_answer_that_speaks_of_errors_is_none() -> None:
    turn = mapper(Quirks(errors_as_text=re.compile(r"\Aunexpected status")))
    turn.feed(text("I found this in the log: unexpected status 402"))
    assert turn.feed(answer(stopReason="end_turn")) == [Ended(StopReason.END_TURN)]


@pytest.mark.parametrize("reason", ["refusal", "max_tokens"])
def test_an_answer_that_is_cut_off_is_an_error(reason: str) -> None:
    ended = mapper().feed(answer(stopReason=reason))[0]
    assert isinstance(ended, Ended) and ended.reason is StopReason.ERROR and ended.error


def test_a_model_that_was_cut_off_says_everything_anew() -> None:
    """Most agents ask again without a word: only the runner knows where the cut was."""
    turn = mapper()
    steps = [one for said in ("all before ", "halfway ") for one in turn.feed(text(said))]
    assert turn.feed(CUT) == []
    steps += [one for said in ("all before ", "halfway and behind") for one in turn.feed(text(said))]
    first, again = [event for event in events(steps) if event.kind is Kind.TEXT_DELTA][::2]
    (retried,) = [event for event in events(steps) if event.kind is Kind.ERROR]
    assert (check(retried).data["code"], retried.data["discards"]) == ("model_retried", [first.data["part_id"]])
    assert again.data["part_id"] != first.data["part_id"]
    assert turn.feed(answer(stopReason="end_turn")) == [Ended(StopReason.END_TURN)]


def test_a_cut_that_hit_nothing_takes_nothing_back() -> None:
    """A tool ran when the daemon died; or all had been said, and another call was cut."""
    turn = mapper()
    steps = turn.feed(text("I look"))
    steps += turn.feed(update(sessionUpdate="tool_call", toolCallId="t", status="in_progress"))
    steps += [*turn.feed(CUT), *turn.feed(update(sessionUpdate="tool_call_update", toolCallId="t", status="completed"))]
    steps += [*turn.feed(text("found")), *turn.feed(CUT), *turn.feed(answer(stopReason="end_turn"))]
    assert Kind.ERROR not in kinds(steps)
    assert steps[-1] == Ended(StopReason.END_TURN)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ([BROKE], StopReason.ERROR),
        ([BROKE, CUT, BROKE], StopReason.ERROR),
        ([BROKE, CUT], StopReason.END_TURN),
        ([BROKE, WENT_ON], StopReason.END_TURN),
    ],
)
def test_a_half_answer_does_not_pass_for_the_whole(told: list[JsonObject], reason: StopReason) -> None:
    """It stays, where it was not asked for again. Only then is the turn's end an error."""
    turn = mapper()
    steps = turn.feed(text("half"))
    for word in told:
        steps += [*turn.feed(word), *turn.feed(text(" and more"))]
    (ended,) = turn.feed(answer(stopReason="end_turn"))
    assert isinstance(ended, Ended) and ended.reason is reason and bool(ended.error) is (reason is StopReason.ERROR)
    assert kinds(steps).count(Kind.ERROR) == told.count(CUT)


def test_pi_tells_that_its_model_is_asked_again() -> None:
    pi = PRESETS["pi-acp"].quirks
    turn = mapper(pi)
    steps = [*turn.feed(text("half")), *turn.feed(text("Retrying (attempt 1/1, waiting 1s)..."))]
    steps += [*turn.feed(text("whole")), *turn.feed(text("Retry finished, resuming."))]
    assert [event.data.get("text") for event in events(steps) if event.kind is Kind.TEXT_DELTA] == ["half", "whole"]
    assert [len(event.data["discards"]) for event in events(steps) if event.kind is Kind.ERROR] == [1]  # type: ignore[arg-type]  # a list
    assert turn.feed(answer(stopReason="end_turn")) == [Ended(StopReason.END_TURN)]
    failing = mapper(pi)
    for said in ("half", "Retrying (attempt 1/1, waiting 1s)...", "Retry finished, resuming."):
        failing.feed(text(said))
    (ended,) = failing.feed(answer(stopReason="end_turn"))
    assert isinstance(ended, Ended) and ended.reason is StopReason.ERROR
