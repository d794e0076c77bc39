"""The errors that are answered where no provider has answered."""

import json
from typing import Any

import pytest

from holdfast.broker.models.answering.refusals import give_up
from holdfast.broker.models.asking.candidates import Candidate
from holdfast.broker.models.asking.outcome import Failed, LeftOut, Unanswered
from holdfast.broker.models.providers.catalogue import WIRES, Provider, ProviderKind
from holdfast.vocabulary.models import Model, Wire

PROVIDER = Provider("p", ProviderKind.OPENAI, "https://p.example", None, (), frozenset(WIRES[ProviderKind.OPENAI]))


def candidate(name: str) -> Candidate:
    return Candidate(PROVIDER, Model("p", name, (Wire.CHAT,)), None)


def told(outcome: Unanswered) -> tuple[int, Any]:
    response = give_up(Wire.CHAT, outcome)
    assert isinstance(response.body, bytes)
    return response.status, json.loads(response.body)["error"]


def test_a_model_that_cannot_be_asked_the_question_is_told_from_one_that_is_left_alone() -> None:
    """By the candidate, whatever its name begins with."""
    asked, other = candidate("m"), candidate("m x")
    status, error = told(Unanswered(asked, (), [LeftOut(asked, "images")], 7))
    assert (status, error["code"]) == (400, "cannot_translate") and "p/m (images)" in error["message"]
    status, error = told(Unanswered(asked, (), [LeftOut(other, "images")], 7))
    assert (status, error["code"]) == (503, "provider_failing") and "p/m x (images)" in error["message"]


@pytest.mark.parametrize(("timed_out", "status"), [(False, 502), (True, 504)])
def test_a_provider_that_said_nothing(timed_out: bool, status: int) -> None:
    failed = Failed(candidate("m"), "p has not answered", timed_out=timed_out)
    assert told(Unanswered(failed.candidate, [failed], (), 1))[0] == status


def test_the_last_error_that_is_not_about_our_translation_is_told() -> None:
    own = Failed(candidate("m"), "no", 500, body=b'{"error": {"message": "it burns"}}')
    ours = Failed(candidate("n"), "no", 400, body=b'{"error": {"message": "unknown field"}}', misunderstood=True)
    status, error = told(Unanswered(own.candidate, [own, ours], (), 1))
    assert status == 500 and error["message"].startswith("it burns; p has a problem of its own")
