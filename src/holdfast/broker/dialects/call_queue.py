"""A queue of tool calls: providers may send several of them at once, which agents do not expect.

The first call passes as it comes. What comes meanwhile of others, and of text, waits until that call has ended.
"""

from dataclasses import dataclass, field

from holdfast.broker.dialects.answer import CallBegun, CallEnded, CallPart, Delta, TextDelta, ThoughtDelta

Key = int | str


@dataclass(slots=True)
class _Waiting:
    id: str
    name: str
    parts: list[str] = field(default_factory=list)
    told: bool = False
    """Whether any of its arguments have come."""
    ended: bool = False


class CallQueue:
    def __init__(self) -> None:
        self._calls: dict[Key, _Waiting] = {}
        self._later: list[Delta] = []
        self.any = False
        """Whether there was any call."""

    def say(self, delta: TextDelta | ThoughtDelta) -> list[Delta]:
        if not delta.text:
            return []
        if self._calls:
            self._later.append(delta)
            return []
        return [delta]

    def begin(self, key: Key, call_id: str, name: str) -> list[Delta]:
        if key in self._calls:
            return []
        self.any = True
        first = not self._calls
        self._calls[key] = _Waiting(call_id, name)
        return [CallBegun(call_id, name)] if first else []

    def part(self, key: Key, text: str) -> list[Delta]:
        call = self._calls.get(key)
        if call is None or not text:
            return []
        call.told = True
        if next(iter(self._calls)) == key:
            return [CallPart(text)]
        call.parts.append(text)
        return []

    def end(self, key: Key, arguments: str = "") -> list[Delta]:
        """End a call. ``arguments`` has all of them, from providers that send them only now."""
        call = self._calls.get(key)
        if call is None:
            return []
        found = [] if call.told else self.part(key, arguments or "{}")
        call.ended = True
        while self._calls:
            first = next(iter(self._calls))
            if not self._calls[first].ended:
                break
            del self._calls[first]
            found += [CallEnded(), *self._next()]
        if not self._calls:
            found += self._later
            self._later = []
        return found

    def end_all(self) -> list[Delta]:
        return [delta for key in list(self._calls) for delta in self.end(key)]

    def _next(self) -> list[Delta]:
        if not self._calls:
            return []
        call = next(iter(self._calls.values()))
        return [CallBegun(call.id, call.name), *(CallPart(text) for text in call.parts)]
