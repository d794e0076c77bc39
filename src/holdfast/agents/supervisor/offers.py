"""Which models a conversation can use, and which one it uses: told in its first turn, and whenever that is another.

What was told last is in the agent's own directory, so that the next daemon does not tell it again. What a turn tells
is noted with its prompt: whoever reads the turn, and however often, is told the same.
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
    """Of one agent. ``directory`` tells its own directory."""

    def __init__(self, directory: Callable[[Place], Awaitable[str]]) -> None:
        self._directory = directory
        self._told: dict[tuple[str, str, str], str] = {}

    async def news(self, place: Place, session: str, models: Sequence[Model], current: Model) -> str:
        """What is to be told with the next prompt; empty if it was told before."""
        offer = json.dumps({"models": [model.id for model in models], "current": current.id})
        key = (place.session_id, place.channel, session)
        if key not in self._told:
            known = await find_file(place, await self._path(place, session))
            self._remember(key, (known or b"").decode(errors="replace"))
        return "" if self._told[key] == offer else offer

    async def keep(self, place: Place, session: str, offer: str) -> None:
        """It is on its way."""
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
    """Of what stands in a note; nothing where there is nothing, or nothing that makes sense."""
    told = parse(offer.encode()) if isinstance(offer, str) else None
    match told:
        case {"models": list(models), "current": str(current)}:
            return [TurnEvent(Kind.MODELS, {"models": models, "current": current})]
    return []
