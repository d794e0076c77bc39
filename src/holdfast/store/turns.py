"""Turns of threads: what the agent was asked, how far it has been heard, and how it ended.

Exactly once is made here: the events of a batch and the cursor behind it are one transaction, guarded by the lease and
by the cursor before it. Whoever comes later reads on from the cursor in the row.
"""

from collections.abc import Callable, Sequence

from holdfast.protocol.turn_events import TurnEvent
from holdfast.store.database import Database
from holdfast.store.thread_rows import Lease, Line, MessageRow, TurnRow
from holdfast.store.thread_watch import ThreadWatch

Join = Callable[[Sequence[MessageRow]], str]
"""Makes the prompt of a turn from its messages. Runs inside the transaction: pure and quick."""


def joined(messages: Sequence[MessageRow]) -> str:
    """The texts, with an empty line in between."""
    return "\n\n".join(message.text for message in messages)


class TurnStore:
    """The turns. Every change is under the lease and raises as ``ThreadStore`` says; ``TurnNotFound`` without a row.

    Kinds of events: any but ``message.finalize``, which only ``end`` takes, so that each turn has exactly one.
    """

    def __init__(self, database: Database, watch: ThreadWatch) -> None:
        self._database = database
        self._watch = watch

    async def begin(
        self, lease: Lease, channel: str, turn_id: str, *, join: Join = joined, events: Sequence[TurnEvent] = ()
    ) -> TurnRow | None:
        """Make the turn of what is next in the channel's queue; None if nothing is, or all was taken back meanwhile.

        One message, or if that is of mode ``collect`` all such right behind it. They are ``in_turn`` then, each with
        its ``message.create`` event (message_id, role, text, author, attachments, turn_id); ``events`` come after
        those. The model is the last one named. The turn is ``preparing``. Raises ``WrongState`` if the channel has a
        turn that has not ended: a channel has one at a time, which the database itself guards.
        """
        raise NotImplementedError

    async def steer(self, lease: Lease, turn_id: str, message_id: str) -> MessageRow | None:
        """The message went into the running turn: ``in_turn``, with its ``message.create``. None if it is not queued.

        Call it BEFORE telling the agent, so that a daemon that dies in between does not run it twice.
        Raises ``WrongState`` if the turn has ended: the message stays queued.
        """
        raise NotImplementedError

    async def get(self, turn_id: str) -> TurnRow:
        """The turn; raises ``TurnNotFound``."""
        raise NotImplementedError

    async def page(self, thread_id: str, *, limit: int, before: int | None = None) -> list[TurnRow]:
        """At most ``limit`` turns, newest first; ``before`` is the ``first_seq`` of the last one of the page before."""
        raise NotImplementedError

    async def unfinished(self, thread_id: str) -> list[TurnRow]:
        """Turns that have not ended, oldest first: what a successor takes up. At most one per channel."""
        raise NotImplementedError

    async def note(
        self,
        lease: Lease,
        turn_id: str,
        *,
        state: str | None = None,
        accepted: bool | None = None,
        agent_session_id: str | None = None,
        attempt: bool = False,
        events: Sequence[TurnEvent] = (),
    ) -> TurnRow:
        """Set what is given, and add events that do not come from the agent's stream; the cursor stays.

        ``attempt`` counts ``attempts`` up: before each try to prompt. ``accepted`` once true stays true. A new
        ``agent_session_id`` before the prompt was accepted starts the cursor anew. Raises ``WrongState`` if the turn
        has ended.
        """
        raise NotImplementedError

    async def advance(
        self,
        lease: Lease,
        turn_id: str,
        *,
        after: str,
        cursor: str,
        events: Sequence[TurnEvent],
        state: str | None = None,
    ) -> TurnRow:
        """Add the events that stand between two cursors, and move the cursor on: both or neither.

        Calling it again after an error that left open whether it happened is safe: if the cursor already stands
        at ``cursor``, nothing is added. Raises ``StaleRow`` if it stands anywhere else but ``after``, and
        ``WrongState`` if the turn has ended. Sets ``accepted``: an agent that tells of a turn has accepted it.
        Events that set a channel's ``agent.status`` or ``title`` are kept in its row, too.
        """
        raise NotImplementedError

    async def end(
        self,
        lease: Lease,
        turn_id: str,
        finalize: TurnEvent,
        *,
        events: Sequence[TurnEvent] = (),
        artifacts: Sequence[str] = (),
        cursor: str | None = None,
    ) -> TurnRow:
        """The turn is over: ``events``, then ``finalize``, in one transaction with the state and its messages.

        ``finalize`` is the ``message.finalize`` event: its ``reason`` and ``error`` become the row's, ``artifacts``
        (ids of files) are added to its data. The messages become done, failed or canceled. The agent's text is
        kept in ``answer``, so the transcript outlives the deltas; the channel's status becomes idle, or error.
        A turn that has ended already is returned as it is, and nothing is added.
        """
        raise NotImplementedError

    async def revert(self, lease: Lease, turn_id: str, *, events: Sequence[TurnEvent] = ()) -> list[TurnRow]:
        """The turn and all later ones of its channel were taken back: the transcript leaves them out.

        Raises ``WrongState`` if one of them has not ended.
        """
        raise NotImplementedError

    async def transcript(self, thread_id: str, *, channel: str | None = None, limit: int = 1000) -> list[Line]:
        """The last ``limit`` messages of users and agent, oldest first, without thinking, tools and reverted turns.

        What is queued, or was taken back, is left out. The answer of a turn that has not ended is as far as it came.
        """
        raise NotImplementedError
