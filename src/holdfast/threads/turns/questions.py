"""Open questions of one turn. None waits for ever: at its deadline it is answered with its default."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

import structlog

from holdfast.concurrency import cancel_and_wait
from holdfast.errors import HoldfastError
from holdfast.sessions.types import Clock
from holdfast.vocabulary.turn_events import Kind, TurnEvent

log = structlog.get_logger(__name__)

Sleep = Callable[[float], Awaitable[None]]
Answer = Callable[[str, str], Awaitable[None]]
"""Hands an answer (question id, answer) to the agent."""

_AGAIN_SECONDS = 1.0
_MOST_SECONDS = 60.0
"""Between two tries to answer. It begins with the first and doubles: a try may cost the agent, and us, a lot."""


class Questions:
    """Told of each event of the turn, in order. Use ``close`` at the end."""

    def __init__(self, answer: Answer, *, seconds: float, clock: Clock, sleep: Sleep = asyncio.sleep) -> None:
        self._answer = answer
        self._seconds = seconds
        self._clock = clock
        self._sleep = sleep
        self._open: dict[str, asyncio.Task[None]] = {}
        self._closed: set[str] = set()

    def complete(self, event: TurnEvent) -> TurnEvent:
        """Return the event as it is stored: a question says until when it is open, and what counts after that."""
        if event.kind is not Kind.QUESTION:
            return event
        data = dict(event.data)
        if not isinstance(data.get("deadline"), int | float):
            data["deadline"] = self._clock() + self._seconds
        if not isinstance(data.get("default"), str):
            data["default"] = _first_option(data)
        return TurnEvent(event.kind, data)

    def note(self, events: Iterable[tuple[str, Mapping[str, object]]]) -> None:
        """Take note of these (kind, data), which are stored now."""
        for kind, data in events:
            name = str(data.get("question_id"))
            if kind == Kind.QUESTION and name not in self._open and name not in self._closed:
                self._open[name] = asyncio.create_task(self._expire(name, data))
            elif kind == Kind.QUESTION_CLOSED:
                self._closed.add(name)
                self._end(name)

    def is_open(self, question_id: str) -> bool:
        return question_id in self._open

    def knows(self, question_id: str) -> bool:
        return question_id in self._open or question_id in self._closed

    async def close(self) -> None:
        tasks = list(self._open.values())
        self._open.clear()
        await cancel_and_wait(*tasks)

    def _end(self, name: str) -> None:
        task = self._open.pop(name, None)
        if task is not None:
            task.cancel()

    async def _expire(self, name: str, data: Mapping[str, object]) -> None:
        deadline = data.get("deadline")
        if isinstance(deadline, int | float):
            await self._sleep(max(0.0, deadline - self._clock()))
        pause = _AGAIN_SECONDS
        while True:  # until the agent says that it is closed
            try:
                await self._answer(name, str(data.get("default", "")))
            except HoldfastError as error:
                log.warning("question.default.failed", question_id=name, error=error.message)
            except Exception:  # a bug of ours is no reason to leave the agent waiting for ever
                log.exception("question.default.failed", question_id=name)
            await self._sleep(pause)
            pause = min(2 * pause, _MOST_SECONDS)


def _first_option(data: Mapping[str, object]) -> str:
    options = data.get("options")
    if isinstance(options, list) and options and isinstance(options[0], Mapping):
        return str(options[0].get("id", ""))
    return ""
