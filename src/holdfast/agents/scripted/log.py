"""Reads the log of one turn in the sandbox: from its file, or live from the agent's output."""

from holdfast.agents.base import AgentEvent, Cursor, Place
from holdfast.agents.supervisor.home import read_file
from holdfast.agents.supervisor.lines import JsonObject, parse
from holdfast.errors import AgentFailed, FileMissing
from holdfast.vocabulary.turn_events import Kind, TurnEvent, check


class ScriptedLog:
    """One reader of the log. A cursor is an offset in the file, at the end of a line."""

    def __init__(self, place: Place, path: str, key: str, after: Cursor) -> None:
        if after and not (after.isascii() and after.isdigit()):
            raise AgentFailed(f"{after!r} is no cursor of the scripted agent")
        self._place = place
        self._path = path
        self._key = key
        self._position = int(after or "0")
        self.ended = False

    async def rest(self) -> list[AgentEvent]:
        """Read the rest of the file. A line that is not complete yet is left for later."""
        try:
            data = await read_file(self._place, self._path, self._position)
        except FileMissing:  # accepted a moment ago
            return []
        found = []
        for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            self._position += len(line)
            event = _event(parse(line))
            if event is not None:
                found.append(self._with_cursor(event))
        return found

    async def take(self, note: JsonObject) -> list[AgentEvent]:
        """Handle a line of the agent's output: the next event itself, or a hint that there is more to read."""
        start, end = note.get("start"), note.get("end")
        if note.get("turn") != self._key or not isinstance(end, int) or end <= self._position:
            return []
        told = note.get("event")
        event = _event(told) if isinstance(told, dict) else None
        if start != self._position or event is None:
            return await self.rest()
        self._position = end
        return [self._with_cursor(event)]

    def _with_cursor(self, event: TurnEvent) -> AgentEvent:
        self.ended = self.ended or event.kind is Kind.FINALIZE
        return AgentEvent(Cursor(str(self._position)), event)


def _event(told: JsonObject | None) -> TurnEvent | None:
    """Parse and check an event, because a sandbox may write anything; None if it is not valid."""
    match told:
        case {"kind": str(kind), "data": dict(data)}:
            try:
                return check(TurnEvent(Kind(kind), data))
            except ValueError:
                return None
    return None
