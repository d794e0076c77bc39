"""The prices of calls per million tokens, as providers quote them."""

from dataclasses import dataclass

from holdfast.broker.accounts import Tokens

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a model, in US dollars per million tokens."""

    input: float
    output: float
    cached: float | None = None
    """For input that the provider had kept; None: as other input."""
    cache_write: float | None = None
    """For input that the provider was told to keep; None: as other input."""
    long_from: int | None = None
    """A call with more tokens of input than this costs ``long``, all of it."""
    long: "Price | None" = None

    def cost(self, tokens: Tokens, cache_written: int = 0) -> float:
        """Return the cost of a call. ``cache_written`` is a part of the input, like ``tokens.cached``."""
        if self.long is not None and self.long_from is not None and tokens.input > self.long_from:
            return self.long.cost(tokens, cache_written)
        plain = max(tokens.input - tokens.cached - cache_written, 0)
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.cache_write is None else self.cache_write
        total = plain * self.input + tokens.cached * cached + cache_written * written + tokens.output * self.output
        return total / _MILLION


FREE = Price(0.0, 0.0)
