"""The facts that are known of an answer while it passes."""

from dataclasses import dataclass, field

from holdfast.broker.accounts import Tokens
from holdfast.broker.dialects.json import Json, table

_CHARACTERS_PER_TOKEN = 4
"""Roughly, for text that nobody has counted."""


def guessed(characters: int) -> int:
    """Guess how many tokens so many characters are."""
    return characters // _CHARACTERS_PER_TOKEN


def characters(tokens: int) -> int:
    """Guess how many characters so many tokens are."""
    return tokens * _CHARACTERS_PER_TOKEN


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens; ``input`` has ``cached`` and ``cache_written`` in it."""

    input: int = 0
    cached: int = 0
    output: int = 0
    cache_written: int = 0


@dataclass(slots=True)
class Reading:
    """The facts that are known of one answer so far."""

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
    error: Json = field(default_factory=dict)
    """And all that it said of it."""
    characters: int = 0
    """Of the answer, so far."""

    def end(self) -> None:
        """Note that all of it is here."""
        self.finished = self.complete = True

    def fail(self, error: object, otherwise: str = "an error in the stream") -> None:
        """Note what the provider says went wrong."""
        self.error = table(error)
        self.failed = str(self.error.get("message") or otherwise)

    @property
    def usage(self) -> TokenUsage:
        return TokenUsage(self.input or 0, self.cached, self.output or 0, self.cache_written)

    def tokens(self, asked_bytes: int) -> Tokens:
        """The tokens as the provider has counted them; guessed if it has not, because they are not free either."""
        guess = self.begun or self.output is not None
        read = self.input if self.input is not None else guessed(asked_bytes) * guess
        written = self.output if self.output is not None else 0
        if self.output is None or not self.complete:
            written = max(written, guessed(self.characters))
        return Tokens(read, written, min(self.cached, read))
