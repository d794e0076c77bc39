"""How often it is told what a tool that runs has printed: each time it is all of it, and each time it is kept. And how
much of an answer is one event, where it comes faster than it is written down.

A build that prints line by line would fill the database with the same lines, hundreds of times over. So what comes
soon after the last word of it waits a moment for more, and of what has come together only the last counts.
"""

from collections.abc import Sequence
from typing import Final

from holdfast.agents.base import AgentEvent
from holdfast.vocabulary.turn_events import Kind, ToolState, TurnEvent

SECONDS: Final = 0.5
MOST_JOINED: Final = 4000
"""Characters."""


def may_wait(told: AgentEvent) -> bool:
    """Only the output of a tool that runs on; all else, and a tool's end above all, is told at once."""
    return told.event.kind is Kind.TOOL_UPDATE and told.event.data.get("state") == ToolState.RUNNING


def condensed(batch: Sequence[AgentEvent]) -> list[AgentEvent]:
    """Without what a later one of the batch says again, and with the words of one text that came together in one event.
    The last is never left out: its cursor is the batch's."""
    return _joined(_without_repeats(batch))


def _joined(batch: Sequence[AgentEvent]) -> list[AgentEvent]:
    joined: list[AgentEvent] = []
    for told in batch:
        before = joined[-1] if joined else None
        if before is not None and _goes_on(before, told):
            text = f"{before.event.data['text']}{told.event.data['text']}"
            joined[-1] = AgentEvent(told.cursor, TurnEvent(Kind.TEXT_DELTA, {**before.event.data, "text": text}))
        else:
            joined.append(told)
    return joined


def _goes_on(before: AgentEvent, told: AgentEvent) -> bool:
    """Whether it is the next piece of the same text, and both have room in one event."""
    if before.event.kind is not Kind.TEXT_DELTA or told.event.kind is not Kind.TEXT_DELTA:
        return False
    one, other = ({**event.data, "text": ""} for event in (before.event, told.event))
    return one == other and len(str(before.event.data["text"])) + len(str(told.event.data["text"])) <= MOST_JOINED


def _without_repeats(batch: Sequence[AgentEvent]) -> list[AgentEvent]:
    seen: set[object] = set()
    kept: list[AgentEvent] = []
    for told in reversed(batch):
        if may_wait(told):
            tool = told.event.data.get("tool_id")
            if tool in seen:
                continue
            seen.add(tool)
        kept.append(told)
    return kept[::-1]
