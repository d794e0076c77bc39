"""What a slow writer reads from a quick source: all that has come meanwhile, at once; and condensed.

A tool tells all that it has printed each time that it prints more. A build that prints line by line would fill the
database with the same lines, hundreds of times over. So what comes soon after the last word of it waits a moment for
more, and of what has come together only the last counts. Pieces of an answer that have come together are one event.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final, TypeVar

from holdfast.agents.base import AgentEvent
from holdfast.concurrency import cancel_and_wait
from holdfast.vocabulary.turn_events import Kind, ToolState, TurnEvent

T = TypeVar("T")

PAUSE_SECONDS: Final = 0.5
"""How long the output of a tool may wait for more."""
_MOST_JOINED: Final = 4000
"""Characters of an answer in one event."""


class _End:
    """The source has ended; with this error, or without."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


async def batches(
    source: AsyncGenerator[T, None],
    most: int = 200,
    *,
    may_wait: Callable[[T], bool] = lambda _item: False,
    seconds: float = 0.0,
) -> AsyncGenerator[list[T], None]:
    """Yield everything from ``source`` in order, in lists of about ``most``. Its error comes after what came before.

    What ``may_wait``, as long as nothing else comes, does so until ``seconds`` after the list before.
    """
    queue: asyncio.Queue[T | _End] = asyncio.Queue(most)

    async def pump() -> None:
        error: BaseException | None = None
        try:
            async for item in source:
                await queue.put(item)
        except Exception as trouble:  # handed on, to be raised where it is understood
            error = trouble
        await queue.put(_End(error))

    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(source.aclose)
        task = asyncio.create_task(pump())
        stack.push_async_callback(cancel_and_wait, task)
        until = 0.0
        while True:
            batch, end = _drain(await queue.get(), queue)
            while end is None and len(batch) < most and all(map(may_wait, batch)):
                item = await _next(queue, until)
                if item is None:
                    break
                more, end = _drain(item, queue)
                batch += more
            if batch:
                yield batch
                until = asyncio.get_running_loop().time() + seconds
            if end is not None:
                if end.error is not None:
                    raise end.error
                return


def _drain(first: T | _End, queue: "asyncio.Queue[T | _End]") -> tuple[list[T], _End | None]:
    batch: list[T] = []
    item = first
    while True:
        if isinstance(item, _End):
            return batch, item
        batch.append(item)
        if queue.empty():
            return batch, None
        item = queue.get_nowait()


async def _next(queue: "asyncio.Queue[T | _End]", until: float) -> T | _End | None:
    """Return the next item; None if nothing comes by then."""
    if queue.empty() and until <= asyncio.get_running_loop().time():
        return None
    try:
        async with asyncio.timeout_at(until):
            return await queue.get()
    except TimeoutError:
        return None


def may_wait(told: AgentEvent) -> bool:
    """Say whether it is the output of a tool that runs on: all else, and a tool's end above all, is told at once."""
    return told.event.kind is Kind.TOOL_UPDATE and told.event.data.get("state") == ToolState.RUNNING


def condense(batch: Sequence[AgentEvent]) -> list[AgentEvent]:
    """Leave out what a later one of the batch says again, and join words of one text that came together.
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
    """Say whether it is the next piece of the same text, and both have room in one event."""
    if before.event.kind is not Kind.TEXT_DELTA or told.event.kind is not Kind.TEXT_DELTA:
        return False
    one, other = ({**event.data, "text": ""} for event in (before.event, told.event))
    return one == other and len(str(before.event.data["text"])) + len(str(told.event.data["text"])) <= _MOST_JOINED


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
