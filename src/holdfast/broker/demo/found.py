"""Finds the user's own words in a request, because agents wrap them and add text of their own.

A message of the user is a script if each line begins with one of ``VERBS``. What an agent adds is taken away first:
blocks in tags (``<system-reminder>…``), and a history that stands before the message in ``[…]`` markers.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.broker.demo.conversation import Part, Speaker, matches

VERBS = (
    *("say", "think", "run", "write", "wait-for", "sleep", "count", "recall", "history", "model", "fail"),
    *("title", "models", "attachments", "ask", "ask-within", "garbage", "crash", "hang", "hang-hard"),
)

_OPENING = re.compile(r"^[ \t]*<([A-Za-z][\w:.-]*)(?![\w:.-])[^<>]*>", re.MULTILINE)
_CLOSING = re.compile(r"</([A-Za-z][\w:.-]*)>[ \t]*$", re.MULTILINE)
_MARKER = re.compile(r"^\[([^\]\n]*)\][ \t]*$", re.MULTILINE)
_END = re.compile(r"\bend\b", re.IGNORECASE)
_GIVEN_UP = re.compile(r"abort|cancel|interrupt|reject", re.IGNORECASE)

MOST_LINES = 1000
"""Of a script; what has more is none."""

Line = tuple[str, str]


@dataclass(frozen=True, slots=True)
class AskedMessage:
    """The message that is to be answered."""

    text: str
    lines: Sequence[Line]
    """Of the script; none where it is no script."""
    before: Sequence[Part]
    """The conversation up to it, and what stood in the message before it."""
    after: Sequence[Part] = ()
    """What the model said and did about it so far, and what came of that."""
    given: Sequence[Part] = ()
    """All that came with it: since the model had its last word, and until it had its next."""
    steered: Sequence[str] = ()
    """What the user said meanwhile, and was not answered yet."""


def find(parts: Sequence[Part]) -> AskedMessage:
    """Find the last message of the user; or the one before, if the last one only steers what goes on."""
    users = [at for at, part in enumerate(parts) if part.role is Speaker.USER and own_words(part.text)[1]]
    if not users:
        return AskedMessage("", (), parts)
    last = _best_of_message(parts, users)
    asked = _asked(parts, last)
    if asked.lines:
        return asked
    earlier = [at for at in users if at < last and lines_of(own_words(parts[at].text)[1])]
    if not earlier or not _goes_on(parts[earlier[-1] + 1 : last]):
        return asked
    spoken = max(at for at, part in enumerate(parts) if part.role is not Speaker.USER)
    steered = [own_words(parts[at].text)[1] for at in users if at > max(spoken, earlier[-1])]
    return replace(_asked(parts, earlier[-1]), steered=steered)


def own_words(text: str) -> tuple[str, str]:
    """Split a message into what the agent put before the user's words, and those words."""
    ends = [marker.end() for marker in matches(_MARKER, text) if _END.search(marker[1])]
    cut = ends[-1] if ends else 0
    return text[:cut], _without_blocks(text[cut:]).strip()


def _without_blocks(text: str) -> str:
    """Remove what stands in tags. Each tag is looked for once, even if many are opened and never closed."""
    closings: dict[str, list[int]] = {}
    for closing in matches(_CLOSING, text):
        closings.setdefault(closing[1], []).append(closing.start())
    kept: list[str] = []
    at = 0
    for opening in matches(_OPENING, text):
        ends = closings.get(opening[1], [])
        place = bisect_left(ends, opening.end())
        if opening.start() < at or place == len(ends):
            continue
        kept.append(text[at : opening.start()])
        end = text.find("\n", ends[place])
        at = end if end >= 0 else len(text)
    return "".join([*kept, text[at:]])


def lines_of(text: str) -> list[Line]:
    """Return the steps of a script; empty for any other text."""
    steps: list[Line] = []
    for line in text.split("\n", MOST_LINES):
        verb, _, rest = line.strip().partition(" ")
        if verb and (verb not in VERBS or len(steps) == MOST_LINES):
            return []
        if verb:
            steps.append((verb, rest.strip()))
    return steps


def _best_of_message(parts: Sequence[Part], users: Sequence[int]) -> int:
    """Return the last part of the last message that is a script, or else its last part."""
    same = [at for at in users if parts[at].message == parts[users[-1]].message]
    return next((at for at in reversed(same) if lines_of(own_words(parts[at].text)[1])), same[-1])


def _asked(parts: Sequence[Part], at: int) -> AskedMessage:
    preamble, words = own_words(parts[at].text)
    before = [*parts[:at], *([replace(parts[at], text=preamble)] if preamble else [])]
    return AskedMessage(words, lines_of(words), before, parts[at + 1 :], _around(parts, at))


def _around(parts: Sequence[Part], at: int) -> Sequence[Part]:
    others = [number for number, part in enumerate(parts) if part.role is not Speaker.USER]
    start = max((number + 1 for number in others if number < at), default=0)
    return parts[start : min((number for number in others if number > at), default=len(parts))]


def _goes_on(between: Sequence[Part]) -> bool:
    """Say whether the model was still at work: its last word was a tool call, which was not given up."""
    spoken = [part for part in between if part.role is not Speaker.USER]
    return bool(spoken) and spoken[-1].role is Speaker.RESULT and not any(matches(_GIVEN_UP, spoken[-1].text))
