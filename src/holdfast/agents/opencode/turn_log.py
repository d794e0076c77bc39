"""The record of one turn, which our plugin in OpenCode's server writes."""

import re
from collections.abc import Sequence

from holdfast.agents.base import AgentEvent, Cursor, Place
from holdfast.agents.opencode.mapper import OpenCodeMapper
from holdfast.agents.supervisor import JsonObject
from holdfast.agents.supervisor.turn_log import TurnLog
from holdfast.errors import AgentFailed, FileMissing
from holdfast.vocabulary.turn_events import check

_CURSOR = re.compile(r"([0-9]{1,15})\.([0-9]{1,6})")


class OpenCodeLog(TurnLog):
    """One reader of the record. A cursor is the offset of a line, and how many of its events were read."""

    field = "record"

    def __init__(self, place: Place, path: str, key: str, mapper: OpenCodeMapper, after: Cursor) -> None:
        super().__init__(place, path, key)
        self.mapper = mapper
        self._after = _position(after)

    @property
    def ended(self) -> bool:  # type: ignore[override]  # the mapper knows it
        return self.mapper.ended

    async def rest(self) -> list[AgentEvent]:
        try:
            return await super().rest()
        except FileMissing:
            raise AgentFailed("the record of the turn is gone; send the message again") from None

    def events_of(self, record: JsonObject, start: int) -> Sequence[AgentEvent]:
        return [
            AgentEvent(Cursor(f"{start}.{count}"), check(event))
            for count, event in enumerate(self.mapper.feed(record), 1)
            if (start, count) > self._after
        ]


def _position(cursor: Cursor) -> tuple[int, int]:
    if not cursor:
        return (0, 0)
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise AgentFailed(f"{cursor!r} is no cursor of OpenCode")
    return (int(found[1]), int(found[2]))
