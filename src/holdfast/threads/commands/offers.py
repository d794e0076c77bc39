"""Which models a thread may be told to use, and which it uses."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.agents.registry import AgentRegistry
from holdfast.errors import BadInput
from holdfast.records.threads import ThreadRow
from holdfast.threads import options
from holdfast.threads.resolve.briefs import Briefs
from holdfast.vocabulary.models import Model

_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class Offer:
    """One model. Of those that an agent has of its own, only the id is known."""

    id: str
    model: Model | None = None


@dataclass(frozen=True, slots=True)
class Offers:
    """``current`` is what is used where a message names none; None: the agent decides."""

    agent: str
    models: Sequence[Offer]
    current: str | None


def offers_of(agents: AgentRegistry, briefs: Briefs, row: ThreadRow) -> Offers:
    agent = agents.get(row.agent)
    served = [Offer(model.id, model) for model in briefs.models(row)]
    found = [*served, *(Offer(name) for name in agent.abilities.models)]
    chosen = options.from_json(row.settings).model
    first = next((one.id for one in served), None)
    return Offers(agent.name, found, chosen if chosen in {one.id for one in found} else first)


def new_thread(agents: AgentRegistry, owner: str) -> ThreadRow:
    """As one of that owner would be that names no options."""
    agent = agents.get().name
    return ThreadRow(
        id="", owner=owner, key="", platform="", agent=agent, last_activity_at=0.0, created_at=0.0, updated_at=0.0
    )


def check(offers: Offers, model: str) -> str:
    """The model, if it is offered."""
    ids = [one.id for one in offers.models]
    if model not in ids:
        some = ", ".join(ids[:_MOST_NAMED]) or "none at all"
        raise BadInput(f"model: {model} is not offered here; there is {some}")
    return model
