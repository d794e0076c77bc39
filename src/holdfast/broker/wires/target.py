"""Who a question is written for."""

import re
from dataclasses import dataclass

from holdfast.broker.wires.lacks import CannotCarry
from holdfast.broker.wires.talk import Talk, has_images


@dataclass(frozen=True, slots=True)
class Target:
    model: str
    output_tokens: int
    """As many as the model can answer with."""
    asks_for_usage: bool = True
    """Whether a streamed chat completion must be told to count."""
    is_openai: bool = True
    """Or one of its many imitators, who have kept its older words."""

    sees_images: bool = True

    def most(self, talk: Talk) -> int | None:
        """No more than it can: providers refuse to be asked for more."""
        return min(talk.max_tokens, self.output_tokens) if talk.max_tokens else None


def check(talk: Talk, target: Target, names: re.Pattern[str]) -> None:
    """What is the same for all dialects. Raises ``CannotCarry``."""
    if not target.sees_images and has_images(talk):
        raise CannotCarry("an image, which this model cannot be shown")
    for tool in talk.tools:
        if tool.kind != "function":
            raise CannotCarry(f"the tool {tool.name} ({tool.kind}), which is the provider's own")
        if not names.fullmatch(tool.name):
            raise CannotCarry(f"the tool name {tool.name!r}")
