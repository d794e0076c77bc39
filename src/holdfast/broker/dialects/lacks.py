"""Finds what cannot be carried from one dialect to another. It is reported, and never left out in silence."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from holdfast.broker.dialects.json import Json
from holdfast.broker.dialects.question import CommonQuestion, has_images

HINTS = frozenset({"metadata", "service_tier", "user"})
"""Fields of a question that do not change what it asks: its user, caching, effort of thinking, price. They are meant
for the provider that they were sent to, and are left out for another one. Each dialect has more of them."""


class CannotCarry(Exception):
    """A question cannot be written in a dialect. The message says what: ``the tool web_search, which …``."""


class Lacks:
    """Collects, while a question is read, what it contains for which there is no common form."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}

    def note(self, what: str) -> None:
        self._found[what] = None

    def fields(self, data: Json, known: Collection[str], where: str = "") -> None:
        """Note each field that is not known, unless it is empty."""
        for name, value in data.items():
            if name not in known and value:
                self.note(f"{where}{name}")

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(self._found)


@dataclass(frozen=True, slots=True)
class Target:
    """The model that a question is written for."""

    model: str
    output_tokens: int
    """As many as the model can answer with."""
    asks_for_usage: bool = True
    """Whether a streamed chat completion must be told to count."""
    is_openai: bool = True
    """Or one of its many imitators, who have kept its older words."""
    sees_images: bool = True

    def most(self, talk: CommonQuestion) -> int | None:
        """Return the limit of output tokens, never more than the model can produce, because providers refuse that."""
        return min(talk.max_tokens, self.output_tokens) if talk.max_tokens else None


def check(talk: CommonQuestion, target: Target, names: re.Pattern[str]) -> None:
    """Check what is the same for all dialects. Raises ``CannotCarry``."""
    if not target.sees_images and has_images(talk):
        raise CannotCarry("an image, which this model cannot be shown")
    for tool in talk.tools:
        if tool.kind != "function":
            raise CannotCarry(f"the tool {tool.name} ({tool.kind}), which is the provider's own")
        if not names.fullmatch(tool.name):
            raise CannotCarry(f"the tool name {tool.name!r}")
