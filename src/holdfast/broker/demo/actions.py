"""What the demo model does in one answer: a few of these, in order. Nothing comes after ``Use`` or ``Fail``."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.broker.demo.conversation import count
from holdfast.broker.dialects.json import Json

_WORD = re.compile("[^ ]* |[^ ]+")


@dataclass(frozen=True, slots=True)
class Say:
    text: str

    @property
    def words(self) -> Iterator[str]:
        return split(self.text)


@dataclass(frozen=True, slots=True)
class Think:
    text: str

    @property
    def words(self) -> Iterator[str]:
        return split(self.text)


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
    """An error of the provider; as the status of the answer where nothing was said before it, else in the stream."""

    status: int
    message: str


Action = Say | Think | Use | Wait | Fail


def written_tokens(actions: Sequence[Action]) -> int:
    """What the answer costs."""
    sizes = [count(action.text) for action in actions if isinstance(action, Say | Think)]
    sizes += [count(json.dumps(action.arguments)) for action in actions if isinstance(action, Use)]
    return max(1, sum(sizes))


def split(text: str) -> Iterator[str]:
    """Pieces that give the text again when they are joined: what one delta carries."""
    return (found[0] for found in _WORD.finditer(text))
