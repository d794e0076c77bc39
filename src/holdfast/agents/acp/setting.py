"""What a preset makes its agent's configuration from: one model, in one dialect, and what the brief says."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.agents.base import Brief
from holdfast.agents.permissions import Action
from holdfast.errors import AgentFailed
from holdfast.protocol.models import Model, Wire, placeholder, url_of


@dataclass(frozen=True, slots=True)
class Setting:
    """``home`` is a directory of the agent's own in the sandbox."""

    home: str
    brief: Brief
    tag: str
    wire: Wire
    model: Model
    models: Sequence[Model]
    """All that the agent can reach, ``model`` first."""

    @property
    def key(self) -> str:
        return placeholder(self.tag)

    @property
    def url(self) -> str:
        return url_of(self.model.provider)

    @property
    def asks(self) -> bool:
        """Whether any tool is not simply allowed: only then agents that can do without asking are told to ask."""
        return any(rule.action is not Action.ALLOW for rule in self.brief.permissions)

    @property
    def providers(self) -> dict[str, list[Model]]:
        found: dict[str, list[Model]] = {}
        for model in self.models:
            found.setdefault(model.provider, []).append(model)
        return found


def choose(agent: str, home: str, tag: str, brief: Brief, wires: Sequence[Wire], *, several: bool) -> Setting:
    """The first model that speaks a dialect of the agent's; ``several``: it can have more, of any provider."""
    fitting = [model for model in brief.models if any(wire in model.wires for wire in wires)]
    if not fitting:
        offered = ", ".join(f"{model.id} ({', '.join(model.wires)})" for model in brief.models) or "none"
        raise AgentFailed(
            f"{agent} speaks {', '.join(wires)}, and no model that this thread may use does. Offered: {offered}. "
            f"Add a provider with one of these dialects to the setting providers, or choose another agent"
        )
    first = fitting[0]
    wire = next(wire for wire in wires if wire in first.wires)
    if not several:
        fitting = [model for model in fitting if model.provider == first.provider and wire in model.wires]
    return Setting(home, brief, tag, wire, first, fitting)
