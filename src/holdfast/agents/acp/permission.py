"""A permission question of an agent, and its answer in the agent's own format."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.agents.acp.messages import Id
from holdfast.agents.supervisor.lines import JsonObject

ALLOW: Final = "allow"
ALLOW_ALWAYS: Final = "allow_always"
DENY: Final = "deny"
CANCELED: Final = "canceled"

_LABELS: Final = {ALLOW: "Allow once", ALLOW_ALWAYS: "Always allow", DENY: "Deny"}
_YES: Final = ("allow_once",)
"""Never ``allow_always``: then the agent would not ask again, not even about what a rule denies. See ``always``."""
_NO: Final = ("reject_once", "reject_always")


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """One question. ``number`` is its position among the turn's requests, and names it; ``id`` is the agent's."""

    number: int
    id: Id
    tool_id: str
    tool: str
    argument: str
    title: str
    options: Sequence[tuple[str, str]]
    """(its id, its kind)"""
    withdrawn: bool = False
    """The agent does not wait for an answer any more."""

    def event_options(self) -> list[JsonObject]:
        return [{"id": name, "label": label} for name, label in _LABELS.items()]

    def outcome(self, answer: str) -> JsonObject:
        """Return the result for the agent. Only a clear yes counts as yes."""
        if answer == CANCELED:
            return {"outcome": {"outcome": "cancelled"}}
        for wanted in _YES if answer in (ALLOW, ALLOW_ALWAYS) else _NO:
            for option, kind in self.options:
                if kind == wanted:
                    return {"outcome": {"outcome": "selected", "optionId": option}}
        return {"outcome": {"outcome": "cancelled"}}


def options_of(params: JsonObject) -> list[tuple[str, str]]:
    options = params.get("options")
    found = []
    for option in options if isinstance(options, list) else []:
        match option:
            case {"optionId": str(id), "kind": str(kind)}:
                found.append((id, kind))
    return found
