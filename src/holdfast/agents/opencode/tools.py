"""Maps OpenCode's names of tools to ours (``permissions.KINDS``)."""

from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.agents.permissions import Action, Rule

_KINDS: Final[Mapping[str, str]] = {
    "bash": "bash",
    "read": "read",
    "edit": "edit",
    "write": "edit",
    "patch": "edit",
    "glob": "search",
    "grep": "search",
    "list": "search",
    "codesearch": "search",
    "webfetch": "webfetch",
    "websearch": "webfetch",
    "task": "task",
    "todowrite": "other",
    "todoread": "other",
    "skill": "other",
    "lsp": "other",
}


def kind_of(permission: str) -> str:
    return _KINDS.get(permission, "other")


def permissions(rules: Sequence[Rule]) -> dict[str, str]:
    """The permissions in OpenCode's configuration: it has to ask for every tool that some rule does not allow. The host
    decides each time."""
    strict = {rule.tool for rule in rules if rule.action is not Action.ALLOW}
    asked = {name: "ask" for name, kind in _KINDS.items() if kind in strict or "*" in strict}
    return {"*": "ask" if strict & {"other", "*"} else "allow", **_ALWAYS, **asked}


_ALWAYS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_KINDS, "allow"),
    "question": "allow",
    "external_directory": "allow",  # the sandbox is the border, and not the working directory
    "doom_loop": "allow",
}
