"""Reports which models a conversation can use, and which one it uses: in its first turn, and after each change.

The last report is saved in the agent's own directory, so that the next daemon does not repeat it. The report of a turn
is stored with its prompt, so everyone who reads the turn, however often, gets the same events.
"""

import json
from collections.abc import Awaitable, Callable, Sequence

from holdfast.agents.base import Place
from holdfast.agents.supervisor.home import file_name, find_file, write_file
from holdfast.agents.supervisor.lines import parse
from holdfast.concurrency import Bounded
from holdfast.errors import AgentFailed
from holdfast.vocabulary.models import Model
from holdfast.vocabulary.turn_events import Kind, TurnEvent


class Offers:
    """The model offers of one agent. ``directory`` returns the agent's own directory."""

    def __init__(self, directory: Callable[[Place], Awaitable[str]]) -> None:
        self._directory = directory
        self._told = Bounded[tuple[str, str, str], str](10_000)

    async def news(self, place: Place, conversation: str, models: Sequence[Model], current: Model) -> str:
        """Return the offer that the next prompt must report; empty if it was reported before."""
        offer = json.dumps({"models": [model.id for model in models], "current": current.id})
        key = (place.session_id, place.channel, conversation)
        if key not in self._told:
            known = await find_file(place, await self._path(place, conversation))
            self._told[key] = (known or b"").decode(errors="replace")
        return "" if self._told[key] == offer else offer

    async def keep(self, place: Place, conversation: str, offer: str) -> None:
        """Save an offer as reported, once its prompt was given to the agent."""
        if offer:
            await write_file(place, await self._path(place, conversation), offer.encode())
            self._told[place.session_id, place.channel, conversation] = offer

    async def _path(self, place: Place, conversation: str) -> str:
        return f"{await self._directory(place)}/offers/{file_name(conversation)}"


def pick(agent: str, models: Sequence[Model], wanted: str | None) -> Model:
    """The model with this id, or the first. Raises ``AgentFailed`` if it is not among those that the agent can use."""
    for model in models:
        if wanted in (None, model.id):
            return model
    raise AgentFailed(f"{agent} cannot use the model {wanted}; it can use {', '.join(model.id for model in models)}")


def offer_events(offer: object) -> list[TurnEvent]:
    """Return the events of an offer in a note; none if the note has no valid offer."""
    told = parse(offer.encode()) if isinstance(offer, str) else None
    match told:
        case {"models": list(models), "current": str(current)}:
            return [TurnEvent(Kind.MODELS, {"models": models, "current": current})]
    return []
