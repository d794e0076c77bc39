"""Which models a thread may be told to use, and which it uses."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors import BadInput
from holdfast.protocol.models import Model
from holdfast.store.thread_rows import ThreadRow
from holdfast.threads import options
from holdfast.threads.tools import Tools

_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class Offer:
    """One model. Of those that an agent has of its own, only the id is known."""

    id: str
    model: Model | None = None


@dataclass(frozen=True, slots=True)
class Offers:
    """``current`` is what is used where a message names none; None: the agent decides."""

    models: Sequence[Offer]
    current: str | None


def offers_of(tools: Tools, row: ThreadRow | None) -> Offers:
    """Of a thread; without one, what a new thread would have."""
    agent = tools.agents.get(row.agent if row is not None else None)
    served = [Offer(model.id, model) for model in tools.models()]
    own = [Offer(name) for name in agent.abilities.models]
    found = [*served, *own]
    chosen = None if row is None else options.from_json(row.settings).model
    return Offers(found, chosen or next((one.id for one in served), None))


def check(offers: Offers, model: str) -> str:
    """The model, if it is offered."""
    ids = [one.id for one in offers.models]
    if model not in ids:
        some = ", ".join(ids[:_MOST_NAMED]) or "none at all"
        raise BadInput(f"model: {model} is not offered here; there is {some}")
    return model
