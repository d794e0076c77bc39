"""Which step of a sleep policy is due: the table of ``holdfast.records.sleep``."""

from dataclasses import asdict

import pytest

from holdfast.records.sleep import CountsFrom, IdlePolicy, SleepFacts, SleepPolicy, SleepState, SleepStep, due

NOW = 1000.0
PAUSE, HIBERNATE, DESTROY = SleepStep
SESSION = SleepPolicy(10, 20, 30)
THREAD = IdlePolicy(10, 20, 30)


def idle(seconds: float) -> SleepFacts:
    return SleepFacts(SleepState.AWAKE, NOW - seconds)


def asleep(state: SleepState, seconds: float, used: float = 500) -> SleepFacts:
    return SleepFacts(state, NOW - used, NOW - seconds)


@pytest.mark.parametrize(
    ("facts", "steps"),
    [
        (idle(9), []),
        (idle(10), [PAUSE]),
        (idle(500), [PAUSE]),
        (asleep(SleepState.PAUSED, 19), []),
        (asleep(SleepState.PAUSED, 20), [HIBERNATE]),
        (asleep(SleepState.PAUSED, 500), [HIBERNATE]),
        (asleep(SleepState.HIBERNATED, 29), []),
        (asleep(SleepState.HIBERNATED, 30), [DESTROY]),
        (SleepFacts(SleepState.PAUSED, 0.0), []),
        (asleep(SleepState.NONE, 500), []),
    ],
)
def test_a_sessions_periods_count_from_the_step_before(facts: SleepFacts, steps: list[SleepStep]) -> None:
    assert SESSION.counts_from is CountsFrom.STEP_BEFORE
    assert due(SESSION, facts, NOW) == steps


@pytest.mark.parametrize(
    ("state", "idle_for", "steps"),
    [
        (SleepState.AWAKE, 9, []),
        (SleepState.AWAKE, 10, [PAUSE]),
        (SleepState.AWAKE, 20, [HIBERNATE, PAUSE]),
        (SleepState.AWAKE, 30, [DESTROY, HIBERNATE, PAUSE]),
        (SleepState.PAUSED, 19, []),
        (SleepState.PAUSED, 30, [DESTROY, HIBERNATE]),
        (SleepState.HIBERNATED, 29, []),
        (SleepState.HIBERNATED, 30, [DESTROY]),
        (SleepState.NONE, 500, []),
    ],
)
def test_a_threads_periods_count_from_its_last_activity(
    state: SleepState, idle_for: float, steps: list[SleepStep]
) -> None:
    assert THREAD.counts_from is CountsFrom.LAST_ACTIVITY
    assert due(THREAD, SleepFacts(state, NOW - idle_for), NOW) == steps
    assert due(THREAD, SleepFacts(state, NOW - idle_for, asleep_at=0.0), NOW) == steps


@pytest.mark.parametrize("policy", [SleepPolicy(), SleepPolicy(None, 0, 0), IdlePolicy(None, None, None)])
def test_none_means_never(policy: SleepPolicy) -> None:
    assert due(policy, idle(1e9), NOW) == []


def test_what_is_stored_of_a_policy_is_its_three_periods() -> None:
    """Other versions read it, too, and it is part of what an idempotency key stands for."""
    stored = {"pause_after_seconds": 1, "hibernate_after_seconds": None, "destroy_after_seconds": 2}
    assert asdict(SleepPolicy(1, None, 2)) == asdict(IdlePolicy(1, None, 2)) == stored


def test_right_after_a_turn() -> None:
    assert IdlePolicy(0, 5, 5).at_once and IdlePolicy(None, 0).at_once and not IdlePolicy().at_once
