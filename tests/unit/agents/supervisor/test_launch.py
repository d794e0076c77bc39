"""What a process is found by, and how often one that does not come up is tried."""

from dataclasses import replace

from holdfast.agents.supervisor.breaker import WINDOW_SECONDS, StartBreaker
from holdfast.agents.supervisor.launch import Launch, LaunchMark, mark_of

LAUNCH = Launch("codex", ["codex-acp", "a b"], {"A": "1"}, {"config": b"x"})


def test_a_command_tells_who_it_is() -> None:
    command = LAUNCH.command("0123456789abcdef", 7)
    assert mark_of(command) == LaunchMark("codex", "0123456789abcdef", 7, LAUNCH.digest)
    assert command.endswith("exec codex-acp 'a b'")
    assert mark_of(f"echo {command}") is None
    assert mark_of("sleep 1") is None


def test_any_change_is_another_digest() -> None:
    others = [
        replace(LAUNCH, argv=["codex-acp"]),
        replace(LAUNCH, env={"A": "2"}),
        replace(LAUNCH, files={"config": b"y"}),
        replace(LAUNCH, cwd="/elsewhere"),
    ]
    assert len({LAUNCH.digest, *(one.digest for one in others)}) == 5
    assert replace(LAUNCH, env={"A": "1"}).digest == LAUNCH.digest


def test_three_failures_close_it_until_the_window_has_passed() -> None:
    now = 1000.0
    breaker = StartBreaker(lambda: now)
    pauses = []
    for number in range(3):
        assert breaker.closed_for == 0
        pauses.append(breaker.pause)
        breaker.record_failure(f"no {number}")
    assert pauses == [0, 1, 4]
    assert breaker.closed_for == WINDOW_SECONDS and breaker.why == "no 2"
    now += WINDOW_SECONDS + 1
    assert breaker.closed_for == 0 and breaker.pause == 0


def test_failures_count_within_the_window_however_many_starts_went_well_between() -> None:
    now = [5.0]
    breaker = StartBreaker(lambda: now[-1])
    for at in (5.0, 300.0, 700.0):
        now.append(at)
        assert breaker.closed_for == 0
        breaker.record_failure("no")
    assert breaker.closed_for == 0, "the first is out of it"
    breaker.record_failure("no")
    assert breaker.closed_for == 300.0 + WINDOW_SECONDS - 700.0
