"""What the demo model does in one answer: a few of these, in order. Nothing comes after ``Use`` or ``Fail``."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.broker.demo.conversation import count
from holdfast.broker.dialects.json import Json

_WORD = re.compile("[^ ]{0,4095} |[^ ]{1,4096}")  # bounded, since each match is one call that no other thread runs in


@dataclass(frozen=True, slots=True)
class Say:
    text: str


@dataclass(frozen=True, slots=True)
class Think:
    text: str


@dataclass(frozen=True, slots=True)
class Use:
    """Ask the agent to run a tool of its own."""

    tool: str
    arguments: Json


@dataclass(frozen=True, slots=True)
class Wait:
    """Say nothing for a while."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer with an error of a provider: as the status if nothing was said before it, otherwise in the stream."""

    status: int
    message: str


Action = Say | Think | Use | Wait | Fail


def written_tokens(actions: Sequence[Action]) -> int:
    """Count the tokens of the answer."""
    sizes = [count(action.text) for action in actions if isinstance(action, Say | Think)]
    sizes += [count(json.dumps(action.arguments)) for action in actions if isinstance(action, Use)]
    return max(1, sum(sizes))


def split(text: str) -> Iterator[str]:
    """Yield pieces that give the text again when they are joined: what one delta carries."""
    return (found[0] for found in _WORD.finditer(text))
