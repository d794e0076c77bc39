"""The rate of log lines: a flood is cut and counted, and hides nobody else's lines."""

import logging
import time

import pytest
import structlog

from holdfast.daemon import log_limits
from holdfast.daemon.log_limits import BURST, BURST_OF_ALL, LEFT_OUT, MAX_TEXT, MOST_SUBJECTS, MOST_TOLD, LogLimits


class Log:
    """What comes through the limits, at a time that stands still until it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.limits = LogLimits()
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def say(self, event: str, **facts: object) -> dict[str, object] | None:
        try:
            return dict(self.limits(None, "info", {"event": event, **facts}))
        except structlog.DropEvent:
            return None

    def flood(self, event: str, count: int, **facts: object) -> int:
        return sum(self.say(event, **facts) is not None for _ in range(count))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(monkeypatch)


def test_a_flood_is_cut_counted_and_nobody_elses(log: Log) -> None:
    assert log.flood("egress.refused", 1000, session_id="a") == BURST
    assert log.say("egress.refused", session_id="b") == {"event": "egress.refused", "session_id": "b"}
    assert log.say("egress.unreachable", session_id="a") is not None, "another kind"
    log.now += 3
    again = log.say("egress.refused", session_id="a")
    assert again is not None and again["left_out"] == 1000 - BURST
    assert log.flood("egress.refused", 100, session_id="a") == 2


def test_many_subjects_have_a_limit_together(log: Log) -> None:
    written = sum(log.flood("egress.refused", BURST, session_id=str(number)) for number in range(100))
    assert written == BURST_OF_ALL


def test_the_end_of_a_session_says_what_was_left_out(log: Log) -> None:
    log.flood("egress.refused", BURST + 7, session_id="a")
    log.flood("git.refused", BURST + 2, session_id="a")
    end = log.say("session.destroyed", session_id="a")
    assert end is not None and end["lines_left_out"] == {"egress.refused": 7, "git.refused": 2}
    assert log.limits.take_left_out() == []


def test_what_no_other_line_tells_is_told_later(log: Log) -> None:
    for number in range(MOST_TOLD + 5):
        log.flood("egress.refused", BURST + 1 + number, session_id=str(number))
        log.now += 10
    told = log.limits.take_left_out()
    assert told[0] == ("egress.refused", str(MOST_TOLD + 4), MOST_TOLD + 5)
    assert told[-1] == ("others", "", 1 + 2 + 3 + 4 + 5) and len(told) == MOST_TOLD + 1
    assert log.limits.take_left_out() == []
    assert log.flood(LEFT_OUT, 3 * BURST, subject="x") == 3 * BURST


def test_callers_whose_key_was_good_are_all_in_the_access_log(log: Log) -> None:
    assert log.flood("request", 3 * BURST, route="/v1/sessions", status=200, key="root") == 3 * BURST
    assert log.flood("request", 3 * BURST, route="/v1/sessions", status=401, key=None) == BURST
    assert log.say("request", route="/healthz", status=200, key=None) is not None, "strangers hide no health check"


def test_long_values_are_cut(log: Log) -> None:
    found = log.say("git.refused", path="x" * 60_000, exception="y" * 5000)
    assert found is not None and len(str(found["path"])) < MAX_TEXT + 30 and "60000 characters" in str(found["path"])
    assert found["exception"] == "y" * 5000


def test_lines_of_libraries(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    def record(number: int) -> logging.LogRecord:
        return logging.LogRecord("uvicorn.error", 30, "x.py", 1, "Invalid HTTP request from %s", (number,), None)

    assert sum(log.limits.filter(record(number)) for number in range(1000)) == BURST
    log.now += 1
    later = record(1)
    assert log.limits.filter(later) and f"[{1000 - BURST} like it were left out]" in later.getMessage()


def test_what_is_remembered_is_bounded(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_limits, "BURST_OF_ALL", 10**9)
    for number in range(MOST_SUBJECTS + 100):
        log.say("egress.refused", session_id=str(number))
    assert len(log.limits._subjects) == MOST_SUBJECTS
