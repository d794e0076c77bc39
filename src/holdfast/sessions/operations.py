"""Long operations that belong to the service and not to whoever asked for them.

A caller that goes away does not stop a create in the middle, and two callers that want the same session destroyed share
one attempt. Only closing the service cancels them; what is then half done is finished by the next daemon.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar, cast

import structlog

from holdfast.concurrency import cancel_and_wait
from holdfast.errors import HoldfastError, Unavailable

log = structlog.get_logger(__name__)

T = TypeVar("T")


class Operations:
    """At most one operation per key at a time."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[object]] = {}
        self._waiting: dict[str, int] = {}
        """How many wait for each."""
        self._closed = False

    def running(self, key: str) -> bool:
        return key in self._tasks

    async def share(self, key: str, start: Callable[[], Coroutine[object, object, T]]) -> T:
        """Run ``start`` unless it is running already, and wait for its end.

        Its error goes to all who wait; if they have all gone, to the log.
        """
        if self._closed:
            raise Unavailable("the daemon is stopping; ask again when it is back")
        self.spawn(key, start)
        task = self._tasks[key]
        self._waiting[key] = self._waiting.get(key, 0) + 1
        try:
            return cast(T, await asyncio.shield(task))  # one key, one kind of operation
        finally:
            if self._tasks.get(key) is task:
                self._waiting[key] -= 1

    async def wait(self, key: str) -> None:
        """Return when no operation with this key is running, however it ended."""
        task = self._tasks.get(key)
        if task is not None:
            await asyncio.wait([task])

    def spawn(self, key: str, start: Callable[[], Coroutine[object, object, object]]) -> None:
        """Run in the background, unless it is running; ``start`` reports its own errors."""
        if not self._closed and key not in self._tasks:
            task = asyncio.create_task(start(), name=key)
            self._tasks[key] = task
            task.add_done_callback(self._ended)

    def attempt(
        self, key: str, what: str, start: Callable[[], Coroutine[object, object, object]], **facts: str
    ) -> None:
        """As ``spawn``, with a failure in the log and no further. The next tick looks at it again."""

        async def run() -> None:
            try:
                await start()
            except HoldfastError as error:
                why = {"code": error.code, "error": error.message}
                log.warning(f"{what}.failed", **why, next="tried again next tick", **facts)

        self.spawn(key, run)

    def _ended(self, task: asyncio.Task[object]) -> None:
        key = task.get_name()
        self._tasks.pop(key, None)
        waiting = self._waiting.pop(key, 0)
        error = None if task.cancelled() else task.exception()  # so that asyncio need not complain of it
        if error is None or waiting:
            return
        if isinstance(error, HoldfastError):
            log.warning("operation.failed", operation=key, code=error.code, error=error.message, heard_by="nobody")
        else:
            log.error("operation.failed", operation=key, heard_by="nobody", exc_info=error)

    async def close(self, grace: float) -> None:
        """Let what is running end for a while, then cancel it."""
        self._closed = True
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
            await cancel_and_wait(*tasks)
