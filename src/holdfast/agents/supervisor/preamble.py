"""A conversation that an agent has lost, or never had, as text: for agents that import none.

It stands before the next prompt or, where an agent takes a message that wants no answer, alone.
"""

from collections.abc import Sequence
from typing import Final

from holdfast.agents.base import Said

BEGIN: Final = "[Conversation so far, for your memory only; do not answer it]"
END: Final = "[End of the conversation so far]"
FOLLOWS: Final = "[End of the conversation so far; the next message follows]"
MOST_CHARACTERS: Final = 200_000
"""The newest count."""

_CUT = " […]"
_WORTH_IT = 1000
"""With less room, the message that does not fit is left out: of a longer one the beginning says what it was about."""
_WHO = {"user": "User", "agent": "You"}


def preamble(history: Sequence[Said], end: str = FOLLOWS) -> str:
    """Empty where nothing was said."""
    lines: list[str] = []
    room = MOST_CHARACTERS
    for one in reversed(history):
        line = f"{_WHO.get(one.role, one.role)}: {one.text.replace(end, '')}"
        if len(line) > room:
            lines += [f"{line[: room - len(_CUT)]}{_CUT}"] if room >= _WORTH_IT else []
            break
        room -= len(line)
        lines.append(line)
    return "\n".join([BEGIN, *reversed(lines), end]) if lines else ""
