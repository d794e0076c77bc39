"""What is known of an answer, while it passes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.broker.accounts import Tokens

_CHARACTERS_PER_TOKEN = 4
"""Roughly, for text that nobody has counted."""


def guessed(characters: int) -> int:
    """Tokens, of so much text."""
    return characters // _CHARACTERS_PER_TOKEN


def characters(tokens: int) -> int:
    """The reverse."""
    return tokens * _CHARACTERS_PER_TOKEN


@dataclass(slots=True)
class Reading:
    """Of one answer."""

    input: int | None = None
    output: int | None = None
    cached: int = 0
    cache_written: int = 0
    cost_usd: float | None = None
    """Where the provider says so itself."""
    begun: bool = False
    """Something of the answer itself has come: it cannot be taken back any more."""
    finished: bool = False
    """The model has said that it is done."""
    complete: bool = False
    """And nothing more is to come, not even its bill."""
    failed: str | None = None
    """What the provider said went wrong."""
    error: Mapping[str, object] = field(default_factory=dict)
    """And all that it said of it."""
    characters: int = 0
    """Of the answer, so far."""

    def tokens(self, asked_bytes: int) -> Tokens:
        """As the provider has counted. Guessed where it has not, or not yet: that is not free either."""
        guess = self.begun or self.output is not None
        read = self.input if self.input is not None else guessed(asked_bytes) * guess
        written = self.output if self.output is not None else 0
        if self.output is None or not self.complete:
            written = max(written, guessed(self.characters))
        return Tokens(read, written, min(self.cached, read))


def failure(reading: Reading, error: object, otherwise: str = "an error in the stream") -> None:
    """Note what the provider says went wrong."""
    reading.error = table(error)
    reading.failed = str(reading.error.get("message") or otherwise)


def table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def tables(value: object) -> list[Mapping[str, object]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def first(value: object) -> Mapping[str, object]:
    """The first of a list of objects."""
    return table(value[0]) if isinstance(value, list) and value else {}


def number(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def amount(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and value >= 0 else None


def length(value: object) -> int:
    return len(value) if isinstance(value, str) else 0
