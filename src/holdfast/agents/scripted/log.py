"""The log of one turn of the scripted agent."""

from holdfast.agents.base import AgentEvent, Cursor, Place
from holdfast.agents.supervisor.lines import JsonObject
from holdfast.agents.supervisor.turn_log import TurnLog
from holdfast.errors import AgentFailed, FileMissing
from holdfast.vocabulary.turn_events import Kind, TurnEvent, check


class ScriptedLog(TurnLog):
    """One reader of the log. A cursor is an offset in the file, at the end of a line."""

    field = "event"
    ended = False

    def __init__(self, place: Place, path: str, key: str, after: Cursor) -> None:
        if after and not (after.isascii() and after.isdigit()):
            raise AgentFailed(f"{after!r} is no cursor of the scripted agent")
        super().__init__(place, path, key, int(after or "0"))

    async def rest(self) -> list[AgentEvent]:
        try:
            return await super().rest()
        except FileMissing:  # accepted a moment ago
            return []

    def events_of(self, record: JsonObject, start: int) -> list[AgentEvent]:
        """Parse and check an event, because a sandbox may write anything; none if it is not valid."""
        match record:
            case {"kind": str(kind), "data": dict(data)}:
                try:
                    event = check(TurnEvent(Kind(kind), data))
                except ValueError:
                    return []
                self.ended = self.ended or event.kind is Kind.FINALIZE
                return [AgentEvent(Cursor(str(self.position)), event)]
        return []
