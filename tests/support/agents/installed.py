"""Real agents that a test needs: without one it is skipped, but in continuous integration that is a failure."""

import os
from pathlib import Path
from unittest import SkipTest

from holdfast.agents.supervisor import AGENT_BIN


def need_agent(program: str) -> None:
    """Raises ``SkipTest`` where a program is not installed; with CI=true, an ``AssertionError``."""
    if Path(AGENT_BIN, program).exists():
        return
    reason = f"{program} is not installed: `holdfast agents install all` does that"
    assert os.environ.get("CI") != "true", reason
    raise SkipTest(reason)  # one line for all tests, unlike pytest.skip
