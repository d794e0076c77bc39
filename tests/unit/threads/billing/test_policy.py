"""What a thread may use: of its own wishes and the daemon's, the tighter ones."""

import pytest

from holdfast.broker.accounts import SpendingLimits
from holdfast.threads.billing.policy import allowed, is_allowed, preferences, tighter
from holdfast.threads.settings import AgentDefaults
from holdfast.threads.types import ThreadOptions


@pytest.mark.parametrize(
    ("own", "above", "both"),
    [
        (None, ["demo/*"], ["demo/*"]),
        (["*"], ["demo/*"], ["demo/*"]),
        (["demo/demo-1"], ["*"], ["demo/demo-1"]),
        (["demo/demo-*", "other/x"], ["demo/*"], ["demo/demo-*"]),
        (["*/small"], ["demo/*"], []),  # they overlap, and nobody can say it as a pattern
        ([], ["*"], []),
        (["demo/*"], ["demo/*"], ["demo/*"]),
    ],
)
def test_patterns_that_both_allow(own: list[str] | None, above: list[str], both: list[str]) -> None:
    assert list(allowed(own, above)) == both


def test_nothing_is_allowed_by_no_pattern() -> None:
    assert is_allowed("demo/demo-1", ["other/*", "demo/*"])
    assert not is_allowed("demo/demo-1", [])


def test_the_tighter_limit_counts() -> None:
    assert tighter(SpendingLimits(), SpendingLimits(1, 2, 3.0)) == SpendingLimits(1, 2, 3.0)
    assert tighter(SpendingLimits(5, 1, None), SpendingLimits(1, 2, 3.0)) == SpendingLimits(1, 1, 3.0)
    assert tighter(SpendingLimits(spend_usd=0.0), SpendingLimits(spend_usd=3.0)) == SpendingLimits(spend_usd=0.0)


def test_the_threads_model_comes_first_and_once() -> None:
    defaults = AgentDefaults(model="a/1", model_preferences=["a/2", "a/3"])
    assert preferences(ThreadOptions(), defaults) == ("a/1", "a/2", "a/3")
    assert preferences(ThreadOptions(model="a/3"), defaults) == ("a/3", "a/2")
    assert preferences(ThreadOptions(model_preferences=[]), defaults) == ("a/1",)
    assert preferences(ThreadOptions(), AgentDefaults()) == ()
