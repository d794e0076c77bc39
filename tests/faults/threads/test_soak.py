"""A short soak, which is longer with ``TEST_WHOLE_SUITE=1``; ``make soak`` runs it for as long as you like.

Each time other choices: SOAK_SEED repeats them.
"""

import os
import random

import pytest

from support.daemons.daemon import unusable_driver
from support.daemons.soak import soak


@pytest.mark.timeout(600)
def test_nothing_is_lost_doubled_left_or_stuck() -> None:
    reason = unusable_driver()
    if reason:
        pytest.skip(f"NO FAULT IS INJECTED ON REAL SANDBOXES: {reason}")
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"SOAK_SEED={seed}")  # shown if it fails
    usual = "120" if os.environ.get("TEST_WHOLE_SUITE") else "30"
    done = soak(float(os.environ.get("TEST_SOAK_SECONDS", usual)), seed)
    assert sum(map(len, done.journal.sent.values())) > 3
    assert sum(count for fault, count in done.journal.faults.items() if fault.startswith("killed")) > 0
