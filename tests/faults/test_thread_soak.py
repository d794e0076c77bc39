"""A short soak; ``make soak`` runs it for as long as you like."""

import os

import pytest

from support.daemon import unusable_driver
from support.soak import soak


@pytest.mark.timeout(600)
def test_nothing_is_lost_doubled_left_or_stuck() -> None:
    reason = unusable_driver()
    if reason:
        pytest.skip(f"NO FAULT IS INJECTED ON REAL SANDBOXES: {reason}")
    done = soak(float(os.environ.get("TEST_SOAK_SECONDS", "30")), seed=1)
    assert sum(map(len, done.sent.values())) > 3
