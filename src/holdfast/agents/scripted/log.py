"""One turn's log of events in the sandbox, read from a place on: by its file, or as it is told while it grows."""

from holdfast.agents.base import AgentEvent, Cursor, Place
from holdfast.agents.supervisor.home import read_file
from holdfast.agents.supervisor.lines import JsonObject, parse
from holdfast.errors import AgentFailed, FileMissing
from holdfast.vocabulary.turn_events import Kind, TurnEvent, check


class ScriptedLog:
    """A reader's view. Its cursors are numbers of bytes in the file, each the end of a line."""

    def __init__(self, place: Place, path: str, key: str, after: Cursor) -> None:
        if after and not (after.isascii() and after.isdigit()):
            raise AgentFailed(f"{after!r} is no cursor of the scripted agent")
        self._place = place
        self._path = path
        self._key = key
        self._position = int(after or "0")
        self.ended = False

    async def rest(self) -> list[AgentEvent]:
        """All that is in the file from here on. A line that is being written is left for later."""
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
        """What the agent has told on its output: the next event itself, or that there is something to read."""
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
    """Checked: it comes from a sandbox. What is no event is nobody's business."""
    match told:
        case {"kind": str(kind), "data": dict(data)}:
            try:
                return check(TurnEvent(Kind(kind), data))
            except ValueError:
                return None
    return None
