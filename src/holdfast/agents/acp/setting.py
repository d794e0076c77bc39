"""What a preset makes its agent's configuration from: one model, in one dialect, and what the brief says."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.agents.base import Brief
from holdfast.agents.permissions import Action
from holdfast.errors import AgentWithoutModel
from holdfast.vocabulary.models import Model, Wire, placeholder, url_of


@dataclass(frozen=True, slots=True)
class AcpSetting:
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
    def is_translated(self) -> bool:
        """Whether the model speaks another dialect than the agent: then its provider's own tools cannot be offered."""
        return self.wire not in self.model.wires

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


def choose(agent: str, home: str, tag: str, brief: Brief, wires: Sequence[Wire], *, several: bool) -> AcpSetting:
    """The first model that speaks a dialect of the agent's; ``several``: it can have more, of any provider.

    If none does, the first of all: the broker translates. One that needs no translation is better, wherever it stands.
    """
    usable = [model for model in brief.models if model.wires]
    if not usable:
        offered = ", ".join(model.id for model in brief.models) or "none"
        raise AgentWithoutModel(
            f"{agent} speaks {', '.join(wires)}, and there is no model that this thread may use. Offered: {offered}. "
            f"Add a provider to the setting providers, or allow one of its models"
        )
    fitting = [model for model in usable if any(wire in model.wires for wire in wires)]
    first = fitting[0] if fitting else usable[0]
    wire = next((wire for wire in wires if wire in first.wires), wires[0])
    if not fitting:
        fitting = [model for model in usable if model.provider == first.provider]
    elif not several:
        fitting = [model for model in fitting if model.provider == first.provider and wire in model.wires]
    return AcpSetting(home, brief, tag, wire, first, fitting)
