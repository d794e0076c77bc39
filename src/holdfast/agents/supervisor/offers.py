"""Reports which models a conversation can use, and which one it uses: in its first turn, and after each change.

The last report is saved in the agent's own directory, so that the next daemon does not repeat it. The report of a turn
is stored with its prompt, so everyone who reads the turn, however often, gets the same events.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence

from holdfast.agents.base import Place
from holdfast.agents.supervisor.home import find_file, write_file
from holdfast.agents.supervisor.lines import parse
from holdfast.vocabulary.models import Model
from holdfast.vocabulary.turn_events import Kind, TurnEvent

_REMEMBERED = 10_000


class Offers:
    """The model offers of one agent. ``directory`` returns the agent's own directory."""

    def __init__(self, directory: Callable[[Place], Awaitable[str]]) -> None:
        self._directory = directory
        self._told: dict[tuple[str, str, str], str] = {}

    async def news(self, place: Place, session: str, models: Sequence[Model], current: Model) -> str:
        """Return the offer that the next prompt must report; empty if it was reported before."""
        offer = json.dumps({"models": [model.id for model in models], "current": current.id})
        key = (place.session_id, place.channel, session)
        if key not in self._told:
            known = await find_file(place, await self._path(place, session))
            self._remember(key, (known or b"").decode(errors="replace"))
        return "" if self._told[key] == offer else offer

    async def keep(self, place: Place, session: str, offer: str) -> None:
        """Save an offer as reported, once its prompt was given to the agent."""
        if offer:
            await write_file(place, await self._path(place, session), offer.encode())
            self._remember((place.session_id, place.channel, session), offer)

    def _remember(self, key: tuple[str, str, str], offer: str) -> None:
        if len(self._told) >= _REMEMBERED:
            self._told.clear()
        self._told[key] = offer

    async def _path(self, place: Place, session: str) -> str:
        name = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:40]
        return f"{await self._directory(place)}/offers/{name}"


def offer_events(offer: object) -> list[TurnEvent]:
    """The events of an offer in a note; none if the note has no valid offer."""
    told = parse(offer.encode()) if isinstance(offer, str) else None
    match told:
        case {"models": list(models), "current": str(current)}:
            return [TurnEvent(Kind.MODELS, {"models": models, "current": current})]
    return []
