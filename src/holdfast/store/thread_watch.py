"""Who wants to know that something happened in a thread: woken at once for this process, within a poll for others."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from holdfast.store.database import Database

Wake = Callable[[], None]
EVERY = 0.25
"""How often other daemons' writes are looked for, in seconds."""


class ThreadWatch:
    """Wakes listeners of a thread after it may have got events, messages or requests; sometimes in vain.

    A listener is a plain function, called in the event loop; it sets an event or the like, and must not raise.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def listening(self, thread_id: str, wake: Wake) -> Iterator[None]:
        """Have ``wake`` called for this thread from now on. Read once after entering: what was before wakes nobody."""
        raise NotImplementedError

    def ring(self, thread_id: str) -> None:
        """This process has written to the thread. The stores call it."""
        raise NotImplementedError

    async def poll(self) -> None:
        """Wake the listeners of threads that another process has written to since the last look: one query for all."""
        raise NotImplementedError

    async def run(self, every: float = EVERY) -> None:
        """Poll for ever; the daemon runs this in a task. A database that is away for a while is waited for."""
        raise NotImplementedError

    async def marks(self, thread_ids: Collection[str]) -> dict[str, tuple[int, int]]:
        """(last_seq, inbox) of each of these threads that is there."""
        raise NotImplementedError
