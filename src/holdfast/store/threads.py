"""Rows of threads and their channels: look-ups, and every change that its lease guards."""

from collections.abc import Mapping, Sequence

from holdfast.protocol.turn_events import TurnEvent
from holdfast.store.database import Database
from holdfast.store.thread_rows import ChannelChange, ChannelRow, Lease, ThreadChange, ThreadRow
from holdfast.store.thread_watch import ThreadWatch


class ThreadStore:
    """The threads. All methods may run at the same time, in several processes.

    Besides what each method names: ``Unavailable`` if the database cannot be reached or is overloaded, ``DiskFull``
    if it cannot grow, ``BadInput`` for text or numbers that it cannot hold. A cancelled call has either happened as a
    whole or not at all. What takes a ``Lease`` raises ``StaleRow`` once that is lost and ``ThreadNotFound`` if the row
    is gone, and has changed nothing then. ``events`` are added in the same transaction as the change.
    """

    def __init__(self, database: Database, watch: ThreadWatch) -> None:
        self._database = database
        self._watch = watch

    async def get_or_create(
        self, *, id: str, owner: str, key: str, agent: str, settings: Mapping[str, object] | None = None
    ) -> tuple[ThreadRow, bool]:
        """The owner's thread with this key, and whether it is new. ``id``, ``agent``, ``settings``: for a new one.

        Of many callers at once, one makes it and all get it. A deleted thread is not found: its key makes a new one.
        """
        raise NotImplementedError

    async def get(self, id: str) -> ThreadRow:
        """The row; raises ``ThreadNotFound``, also if it is deleted."""
        raise NotImplementedError

    async def by_key(self, owner: str, key: str) -> ThreadRow:
        """The row; raises ``ThreadNotFound``."""
        raise NotImplementedError

    async def page(
        self,
        *,
        limit: int,
        owner: str | None = None,
        key_prefix: str = "",
        platform: str | None = None,
        active_since: float | None = None,
        after: tuple[float, str] | None = None,
    ) -> list[ThreadRow]:
        """At most ``limit`` threads, last active first; ``after`` is (last_activity_at, id) of the last one before.

        Reads only: a listing wakes nothing and counts as no activity.
        """
        raise NotImplementedError

    async def on_node(self, node: str) -> list[ThreadRow]:
        """The threads whose session was made by this node: what its death leaves without a sandbox."""
        raise NotImplementedError

    async def by_session(self, session_id: str) -> ThreadRow | None:
        """The thread that owns this session."""
        raise NotImplementedError

    async def channels(self, id: str) -> list[ChannelRow]:
        """The channels of a thread, by name; empty if there is no such thread."""
        raise NotImplementedError

    async def channel(self, id: str, channel: str) -> ChannelRow | None:
        """One channel; None before its first message."""
        raise NotImplementedError

    # ── changes under the lease ─────────────────────────────────────────────────────────────────────────────────

    async def set_session(
        self, lease: Lease, session_id: str | None, *, sleep_state: str | None = None, events: Sequence[TurnEvent] = ()
    ) -> ThreadRow:
        """This is the thread's sandbox now; None: it has none. A new one counts ``incarnation`` up.

        ``sleep_state`` becomes ``awake`` or ``none`` unless given. The cached preview is forgotten.
        """
        raise NotImplementedError

    async def change(self, lease: Lease, values: ThreadChange, *, events: Sequence[TurnEvent] = ()) -> ThreadRow:
        """Set columns."""
        raise NotImplementedError

    async def change_channel(
        self, lease: Lease, channel: str, values: ChannelChange, *, events: Sequence[TurnEvent] = ()
    ) -> ChannelRow:
        """Set columns of a channel (agent session, status, title), which is made if it is not there."""
        raise NotImplementedError

    async def note_error(self, lease: Lease, error: str, *, events: Sequence[TurnEvent] = ()) -> ThreadRow:
        """The sandbox could not be had: keeps the message in ``last_error`` and counts ``resume_failures`` up."""
        raise NotImplementedError

    async def clear_error(self, lease: Lease) -> ThreadRow:
        """It works again: no error, no failures."""
        raise NotImplementedError

    async def touch(self, id: str) -> None:
        """Somebody uses the thread without writing to it (a preview, a terminal): it is not idle. No lease needed."""
        raise NotImplementedError

    async def delete(self, lease: Lease) -> ThreadRow:
        """Delete the thread: its key is free at once, what was queued is canceled, what runs is ended as canceled.

        The row, which nobody finds any more but ``deleted`` and the holder of the lease, stays until ``purge``; its
        session is the caller's to destroy, before or after, followed by ``set_session(lease, None)``.
        """
        raise NotImplementedError

    async def deleted(self, *, limit: int) -> list[ThreadRow]:
        """Deleted threads with a session and a free lease: ``take`` each, destroy, ``set_session(lease, None)``."""
        raise NotImplementedError

    async def purge(self, *, older_than: float) -> list[str]:
        """Forget threads that were deleted so many seconds ago and have no session; returns the paths of their files.

        Everything of theirs goes. The caller removes the files; one that is missing already is no error.
        """
        raise NotImplementedError
