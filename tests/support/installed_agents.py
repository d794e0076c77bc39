"""Which agents there are on this machine, for the tests that drive real ones."""

import os
from pathlib import Path

HOME = Path("/usr/local/lib/holdfast-agents/bin")
PROGRAMS = {
    "claude": ("claude-agent-acp",),
    "codex": ("codex-acp",),
    "gemini": ("gemini",),
    "opencode": ("opencode",),
    "opencode-acp": ("opencode",),
    "pi": ("pi",),
    "pi-acp": ("pi-acp", "pi"),
    "sandbox-agent": ("sandbox-agent", "opencode"),
}


def missing(agent: str) -> str:
    """Why this agent cannot be had; empty if it can. In CI that is no excuse."""
    absent = [program for program in PROGRAMS[agent] if not (HOME / program).exists()]
    reason = f"NOT TESTED: {', '.join(absent)} not in {HOME}; scripts/agents installs them" if absent else ""
    assert not (reason and os.environ.get("CI")), reason
    return reason
