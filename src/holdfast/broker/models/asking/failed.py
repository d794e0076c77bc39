"""A candidate that was asked, and has not begun to answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.broker.models.asking.candidates import Candidate

_PROVIDERS_FAULT = frozenset({0, 401, 402})
"""And all of 5xx. A 403 or 429 may be about one model only, and must not keep others from the rest."""


@dataclass(frozen=True, slots=True)
class Failed:
    """``status`` and what follows are the provider's; 0 where it said nothing."""

    candidate: Candidate
    reason: str
    status: int = 0
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    seconds: float = 0.0
    timed_out: bool = False
    broke: bool = False
    """A stream had begun, without any of the answer."""
    within: bool = False
    """It was said within a stream, and not by the status."""
    misunderstood: bool = False
    """It is about the question, as we have translated it: the agent cannot have meant that."""

    @property
    def may_be_questions(self) -> bool:
        """A question can bring about that its answer comes late, or breaks."""
        return self.timed_out or self.broke or self.within

    @property
    def is_providers_fault(self) -> bool:
        return self.status in _PROVIDERS_FAULT or self.status >= 500
