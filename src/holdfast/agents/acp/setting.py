"""The input for an agent's configuration: a model, its wire format, and the brief."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.agents.base import Brief
from holdfast.agents.permissions import Action
from holdfast.errors import AgentWithoutModel
from holdfast.vocabulary.models import Model, Wire, placeholder, url_of


@dataclass(frozen=True, slots=True)
class AcpSetting:
    """The input of a preset. ``home`` is the agent's own directory in the sandbox."""

    home: str
    brief: Brief
    tag: str
    wire: Wire
    model: Model
    models: Sequence[Model]
    """All models that the agent can use, ``model`` first."""

    @property
    def key(self) -> str:
        return placeholder(self.tag)

    @property
    def url(self) -> str:
        return url_of(self.model.provider)

    @property
    def is_translated(self) -> bool:
        """Whether the broker translates between agent and model; then the provider's own tools cannot be offered."""
        return self.wire not in self.model.wires

    @property
    def asks(self) -> bool:
        """Whether some tool is not simply allowed. Only then are agents configured to ask."""
        return any(rule.action is not Action.ALLOW for rule in self.brief.permissions)

    @property
    def providers(self) -> dict[str, list[Model]]:
        found: dict[str, list[Model]] = {}
        for model in self.models:
            found.setdefault(model.provider, []).append(model)
        return found


def choose(agent: str, home: str, tag: str, brief: Brief, wires: Sequence[Wire], *, several: bool) -> AcpSetting:
    """Choose the first model that speaks a wire format of the agent; ``several`` allows models of several providers.

    If there is none, the first model is chosen, and the broker translates. A model that needs no translation is
    preferred, wherever it stands.
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
