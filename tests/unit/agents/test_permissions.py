"""Rules that an agent cannot keep: refused, whichever agent it is."""

import pytest

from holdfast.agents.known import KNOWN
from holdfast.agents.permissions import KINDS, check, parse, shown
from holdfast.agents.registry import AgentRegistry
from holdfast.errors import AgentUnsupported

ASKS_FOR = {
    "pi": KINDS,
    "opencode": KINDS,
    "sandbox-agent": KINDS,
    "opencode-acp": KINDS,
    "claude": KINDS,
    "codex": ("bash", "edit"),
    "gemini": ("bash", "edit", "webfetch"),
}
"""As docs/agents.md says; all others ask for nothing."""


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_every_agent_says_what_it_asks_for(name: str) -> None:
    kept = AgentRegistry([name]).get().abilities.permissions
    assert tuple(kept) == ASKS_FOR.get(name, ())
    check(name, kept, parse(["allow *", *(f"deny {kind}" for kind in kept), *(["ask *"] if kept else [])]))
    for line in [f"deny {kind}:x" for kind in KINDS if kind not in kept] + ([] if kept else ["ask *"]):
        with pytest.raises(AgentUnsupported, match=f"^{name} cannot keep the rule '{line.replace('*', '.*')}'"):
            check(name, kept, parse([line]))


def test_nothing_hides_behind_a_long_beginning() -> None:
    command = f"echo {'a' * 5000}; rm -rf /"
    assert shown(command).endswith("a; rm -rf /") and f"({len(command) - 4000} characters are not shown)" in shown(
        command
    )
    assert shown("x" * 4000) == "x" * 4000
