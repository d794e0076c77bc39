"""Reads one turn for all readers of this daemon, and saves a record of it in the sandbox."""

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncGenerator

from holdfast.agents.base import AgentEvent, Cursor, Place
from holdfast.agents.sandbox_agent import remains
from holdfast.agents.supervisor import record
from holdfast.errors import AgentDown, HoldfastError


class Scribe:
    """Reads ``events``, the turn from its beginning, and keeps them until the turn is over, even if the server dies."""

    def __init__(self, place: Place, directory: str, name: str, events: AsyncGenerator[AgentEvent, None]) -> None:
        self._place = place
        self._directory = directory
        self._name = name
        self._told: list[AgentEvent] = []
        self._error: HoldfastError | None = None
        self._over = False
        self._changed = asyncio.Event()
        # In a fresh context: it works for all readers, so its log lines must not have the id of the first request.
        self.task = asyncio.create_task(self._write_down(events), context=contextvars.Context())
        self.task.add_done_callback(lambda _task: self._end())

    async def _write_down(self, events: AsyncGenerator[AgentEvent, None]) -> None:
        try:
            async with contextlib.aclosing(events):
                async for told in events:
                    self._told.append(told)
                    self._wake()
        except HoldfastError as error:  # it died: then this much is known
            self._error = error
        self._end()
        if self._told:
            with contextlib.suppress(HoldfastError):
                await record.save(self._place, self._directory, self._name, self._told)

    def _end(self) -> None:
        if self.task.done() and not self._over:  # it was cancelled, perhaps before it had begun
            self._error = AgentDown("nobody reads along any more; read on")
        self._over = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def read(self, after: Cursor) -> AsyncGenerator[AgentEvent, None]:
        """Yield the events after that cursor as they come. Raises the error that ended the turn early, if any."""
        number = len(self._told) - len(remains.after(self._told, after)) if after else 0
        while True:
            changed = self._changed
            while number < len(self._told):
                number += 1
                yield self._told[number - 1]
            if self._over:
                break
            await changed.wait()
        if self._error is not None:
            raise type(self._error)(self._error.message)
