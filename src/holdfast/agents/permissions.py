"""Rules that say what an agent may do without asking; the first rule that matches counts.

A rule is ``ACTION TOOL`` or ``ACTION TOOL:ARGUMENT``, with ``*`` for anything: ``ask bash:git push*``, ``deny
webfetch``, ``allow *``. The tools have our own names (``KINDS``), whatever an agent calls them: its adapter
translates. A tool that no rule matches is allowed, because the sandbox is what protects the host.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from holdfast.errors import AgentUnsupported, BadInput

KINDS: Final = ("bash", "read", "edit", "search", "webfetch", "task", "other")
"""bash: a command line. read, edit: a path. search: a pattern. webfetch: a URL. task: a sub-agent. other: its name."""

MOST_RULES = 200
_SHOWN_BEGINNING, _SHOWN_END = 3000, 1000
"""How many characters of a longer argument are shown to the person who is asked."""


class Action(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Rule:
    action: Action
    tool: str
    argument: str = "*"

    def __str__(self) -> str:
        return f"{self.action} {self.tool}" + ("" if self.argument == "*" else f":{self.argument}")

    def matches(self, tool: str, argument: str) -> bool:
        return fnmatchcase(tool, self.tool) and fnmatchcase(argument, self.argument)


def parse(lines: Iterable[str]) -> tuple[Rule, ...]:
    """Parse rules. Raises ``BadInput`` with the line that is not a rule."""
    rules = tuple(_rule(line) for line in lines)
    if len(rules) > MOST_RULES:
        raise BadInput(f"permissions: at most {MOST_RULES} rules, not {len(rules)}")
    return rules


def _rule(line: str) -> Rule:
    action, _, pattern = line.strip().partition(" ")
    tool, _, argument = pattern.strip().partition(":")
    if action not in tuple(Action) or (tool != "*" and tool not in KINDS):
        raise BadInput(
            f"permissions: {line[:80]!r} is no rule; write allow, ask or deny, then one of {', '.join(KINDS)} or *, "
            "and perhaps :ARGUMENT, such as 'ask bash:git push*'"
        )
    return Rule(Action(action), tool, argument.strip() or "*")


def check(agent: str, asks_for: Sequence[str], rules: Iterable[Rule]) -> None:
    """Raise ``AgentUnsupported`` for a rule that this agent cannot keep: such a rule would be worse than none.

    ``asks_for`` are the ``KINDS`` that the agent asks about. In a rule ``*`` stands for all of these.
    """
    known = (*asks_for, *(["*"] if asks_for else []))
    for rule in rules:
        if rule.action is not Action.ALLOW and rule.tool not in known:
            asks = ", ".join(asks_for) or "nothing"
            raise AgentUnsupported(f"{agent} cannot keep the rule '{rule}': it asks for {asks}; see docs/agents.md")


def find(rules: Sequence[Rule], tool: str, argument: str) -> Rule | None:
    """Return the rule that counts when an agent wants to use a tool, if any."""
    return next((rule for rule in rules if rule.matches(tool, argument)), None)


def decide(rules: Sequence[Rule], tool: str, argument: str) -> Action:
    """Return the action of that rule; without a rule the tool is allowed."""
    rule = find(rules, tool, argument)
    return Action.ALLOW if rule is None else rule.action


def shown(argument: str) -> str:
    """The argument as the person who is asked sees it. It says how much is left out, so that nothing dangerous hides
    behind a long and harmless beginning."""
    hidden = len(argument) - _SHOWN_BEGINNING - _SHOWN_END
    if hidden <= 0:
        return argument
    return f"{argument[:_SHOWN_BEGINNING]} … ({hidden} characters are not shown) … {argument[-_SHOWN_END:]}"
