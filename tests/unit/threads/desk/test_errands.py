"""Errands by way of the store: what one daemon writes another reads, also if that is of the version before."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from holdfast.agents.base import SlashCommand
from holdfast.errors import BadInput, WrongState
from holdfast.threads.commands.git_diff import Diff
from holdfast.threads.desk.errands import (
    KINDS,
    Abort,
    AgentReady,
    AnswerQuestion,
    BeginAnew,
    BegunAnew,
    ChangeOptions,
    Delete,
    Errand,
    ListCommands,
    Pause,
    Resolve,
    Revert,
    ShowDiff,
    StopAgent,
    TurnFound,
    UseModel,
    read_errand,
)
from holdfast.threads.types import AgentCommands, How, Repo, ThreadOptions

OPTIONS = ThreadOptions(agent="pi", env={"A": "1"}, repo=Repo("https://x/y"), permissions=("allow read",))
BEFORE: list[tuple[Errand[Any], dict[str, object], Any, dict[str, object]]] = [
    (
        Resolve("default"),
        {"channel": "default"},
        AgentReady("ses_1", "agent_1", How.RESUMED, "it slept", False),
        {"session_id": "ses_1", "agent_session_id": "agent_1", "how": "resumed", "why": "it slept", "changed": False},
    ),
    (Abort("c", "trn_1"), {"channel": "c", "turn_id": "trn_1"}, TurnFound(None), {"turn_id": None}),
    (AnswerQuestion("q", "yes"), {"question_id": "q", "answer": "yes"}, None, {}),
    (Revert("c", "trn_1"), {"channel": "c", "turn_id": "trn_1"}, TurnFound("trn_1"), {"turn_id": "trn_1"}),
    (Pause(hibernate=True), {"hibernate": True}, None, {}),
    (Delete(), {}, None, {}),
    (
        ChangeOptions(OPTIONS),
        {
            "options": {
                "agent": "pi",
                "env": {"A": "1"},
                "repo": {"url": "https://x/y", "branch": None, "ref": None},
                "permissions": ["allow read"],
            }
        },
        None,
        {},
    ),
    (
        ShowDiff("c"),
        {"channel": "c", "turn_id": None},
        Diff("+one", "git"),
        {"text": "+one", "source": "git", "truncated": False},
    ),
    (
        ListCommands("c"),
        {"channel": "c"},
        AgentCommands("pi", [SlashCommand("compact", "forget")]),
        {"agent": "pi", "commands": [{"name": "compact", "description": "forget"}]},
    ),
    (BeginAnew("c"), {"channel": "c"}, BegunAnew(7), {"seq": 7}),
    (UseModel("acme/big"), {"model": "acme/big"}, None, {}),
    (StopAgent("c", 600.0), {"channel": "c", "idle_seconds": 600.0}, None, {"stopped": True}),
]
"""An errand and its result, with what the version before this form wrote for them."""
each = pytest.mark.parametrize(
    ("errand", "data", "result", "written"), BEFORE, ids=[type(one[0]).__name__ for one in BEFORE]
)


@each
def test_what_the_version_before_wrote_is_read(
    errand: Errand[Any], data: dict[str, object], result: Any, written: dict[str, object]
) -> None:
    assert read_errand(errand.kind, data) == errand
    assert errand.read_result(written) == result


@each
def test_what_is_written_is_what_the_version_before_wrote(
    errand: Errand[Any], data: dict[str, object], result: Any, written: dict[str, object]
) -> None:
    assert json.loads(json.dumps(errand.to_json())) == data
    assert result is None or json.loads(json.dumps(asdict(result))) == written


def test_each_kind_is_here() -> None:
    assert [type(one[0]) for one in BEFORE] == list(KINDS.values())


def test_what_is_optional_may_be_missing_and_what_is_new_is_ignored() -> None:
    assert read_errand("abort", {"channel": "c", "gently": True}) == Abort("c")
    assert read_errand("model", {}) == UseModel(None)


@pytest.mark.parametrize(("kind", "data"), [("abort", {}), ("answer", {"question_id": "q", "answer": 3}), ("fly", {})])
def test_what_cannot_be_read_is_refused(kind: str, data: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=r"missing|cannot fly"):
        read_errand(kind, data)


def test_an_error_of_another_daemon_is_raised_here() -> None:
    with pytest.raises(WrongState, match="a turn is running"):
        Delete().read_result({"error": {"code": "wrong_state", "message": "a turn is running"}})
