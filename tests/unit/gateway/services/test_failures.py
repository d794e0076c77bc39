"""A service that fails again and again is left alone for a while."""

import pytest

from holdfast.errors import ServiceKeepsFailing
from holdfast.gateway.services.failures import MOST, WITHIN_SECONDS, Failures


def test_the_limit_and_its_end() -> None:
    failures = Failures()
    for number in range(MOST):
        failures.check("ses_1", "ide", number, None)
        failures.add("ses_1", "ide", number)
    with pytest.raises(ServiceKeepsFailing, match=r"failed 5 times .* for 590 s.* The last time: no screen"):
        failures.check("ses_1", "ide", 10, "no screen")
    failures.check("ses_1", "ide", WITHIN_SECONDS + 0.5, None)
    failures.add("ses_1", "ide", WITHIN_SECONDS + 0.5)
    with pytest.raises(ServiceKeepsFailing):
        failures.check("ses_1", "ide", WITHIN_SECONDS + 0.6, None)


def test_each_service_of_each_session_counts_by_itself() -> None:
    failures = Failures()
    for _ in range(MOST):
        failures.add("ses_1", "ide", 1)
    failures.check("ses_1", "desktop", 2, None)
    failures.check("ses_2", "ide", 2, None)


def test_a_stop_forgets_it() -> None:
    failures = Failures()
    for _ in range(MOST):
        failures.add("ses_1", "ide", 1)
    failures.forget("ses_1", "ide")
    failures.check("ses_1", "ide", 2, None)
