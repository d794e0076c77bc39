"""Messages of threads: stored once each, in the order they came, until a turn takes them up."""

from collections.abc import Collection

from holdfast.store.database import Database
from holdfast.store.thread_rows import MessageRow, NewMessage, Put
from holdfast.store.thread_watch import ThreadWatch


class MessageStore:
    """The messages. Needs no lease: every daemon takes messages. Raises what ``ThreadStore`` raises."""

    def __init__(self, database: Database, watch: ThreadWatch) -> None:
        self._database = database
        self._watch = watch

    async def put(self, thread_id: str, message: NewMessage) -> Put:
        """Store a message, once: an id that is there already gives the stored one, whatever became of it.

        Raises ``IdempotencyMismatch`` if that one says something else, ``ThreadNotFound``, and ``FileMissing`` if an
        attachment is no upload of this thread. Makes the channel, counts as activity, wakes listeners.
        """
        raise NotImplementedError

    async def get(self, thread_id: str, id: str) -> MessageRow:
        """The message; raises ``NotFound``."""
        raise NotImplementedError

    async def queued(self, thread_id: str, channel: str | None = None) -> list[MessageRow]:
        """What waits for a turn, in order; None: in all channels."""
        raise NotImplementedError

    async def of_turn(self, turn_id: str) -> list[MessageRow]:
        """The messages that a turn answers, in order."""
        raise NotImplementedError

    async def page(
        self, thread_id: str, *, limit: int, after: int = 0, statuses: Collection[str] | None = None
    ) -> list[MessageRow]:
        """At most ``limit`` messages with a greater ``position`` than ``after``, in order."""
        raise NotImplementedError

    async def cancel(self, thread_id: str, id: str) -> MessageRow:
        """Take back a message that is still queued; one that is canceled already is returned as it is.

        Raises ``WrongState`` if a turn has it or had it, and ``NotFound``.
        """
        raise NotImplementedError

    async def cancel_queued(self, thread_id: str, channel: str | None = None) -> list[MessageRow]:
        """Take back all that is queued, in one channel or in all; returns them."""
        raise NotImplementedError
