"""How often it is told what a tool that runs has printed: each time it is all of it, and each time it is kept.

A build that prints line by line would fill the database with the same lines, hundreds of times over. So what comes
soon after the last word of it waits a moment for more, and of what has come together only the last counts.
"""

from collections.abc import Sequence
from typing import Final

from holdfast.agents.base import Told
from holdfast.protocol.turn_events import Kind, ToolState

SECONDS: Final = 0.5


def may_wait(told: Told) -> bool:
    """Only the output of a tool that runs on; all else, and a tool's end above all, is told at once."""
    return told.event.kind is Kind.TOOL_UPDATE and told.event.data.get("state") == ToolState.RUNNING


def condensed(batch: Sequence[Told]) -> list[Told]:
    """Without what a later one of the batch says again. The last is never left out: its cursor is the batch's."""
    seen: set[object] = set()
    kept: list[Told] = []
    for told in reversed(batch):
        if may_wait(told):
            tool = told.event.data.get("tool_id")
            if tool in seen:
                continue
            seen.add(tool)
        kept.append(told)
    return kept[::-1]
