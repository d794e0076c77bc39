"""What an agent that has lost its session is told of the conversation so far."""

from collections.abc import Iterable, Sequence

from holdfast.agents.base import PastMessage
from holdfast.records.threads import fresh_after
from holdfast.store import Store

MOST_BYTES = 1_000_000
"""Of all lines; the newest are kept."""
LINE_BYTES = 64_000
"""Of one line: a pasted log must not push out all the rest."""
_CUT = "\n[…]"


async def history(store: Store, thread_id: str, channel: str, limit: int) -> Sequence[PastMessage]:
    """What was said, oldest first, since the channel last began anew.

    A message that its agent has never been asked is left out: that is still to come.
    """
    pending = {turn.id for turn in await store.turns.unfinished(thread_id) if not turn.accepted}
    after = fresh_after(await store.threads.get(thread_id), channel)
    lines = await store.turns.transcript(thread_id, channel=channel, limit=limit, after=after)
    return bounded(PastMessage(line.role, line.text) for line in lines if line.turn_id not in pending and line.text)


def bounded(lines: Iterable[PastMessage], *, most: int = MOST_BYTES, line_most: int = LINE_BYTES) -> list[PastMessage]:
    """As many of the last ones as fit, long ones cut."""
    kept: list[PastMessage] = []
    for line in reversed(list(lines)):
        cut = PastMessage(line.role, _shortened(line.text, line_most))
        most -= len(_bytes(cut.text))
        if most < 0:
            break
        kept.append(cut)
    return kept[::-1]


def _shortened(text: str, most: int) -> str:
    if len(_bytes(text)) <= most:
        return text
    return _bytes(text)[:most].decode(errors="ignore") + _CUT


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")
