"""What the tables of threads hold, row by row; and the words that their columns may say.

All times are unix seconds of one clock: the database's on Postgres, the machine's on SQLite. So two daemons whose
clocks differ still agree on who holds a lease and who is idle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypedDict

from holdfast.records.sessions import SessionRow
from holdfast.records.sleep import SleepState as SleepState
from holdfast.vocabulary.turn_events import StopReason

DEFAULT_CHANNEL = "default"


class Mode(StrEnum):
    """What becomes of a message that comes while a turn is running."""

    QUEUE = "queue"
    """A turn of its own, after this one."""
    STEER = "steer"
    """Into the running turn, by ``TurnStore.steer``; until that has happened it is like ``queue``."""
    COLLECT = "collect"
    """Together with the ``collect`` messages right behind it, into one next turn."""


class MessageStatus(StrEnum):
    QUEUED = "queued"
    IN_TURN = "in_turn"
    DONE = "done"
    FAILED = "failed"
    CANCELED = "canceled"


class TurnState(StrEnum):
    """In this order and never back, except that a turn which is tried again is ``preparing`` again."""

    QUEUED = "queued"
    PREPARING = "preparing"
    PROMPTED = "prompted"
    RUNNING = "running"
    COLLECTING = "collecting"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write to a thread; ``generation`` is the fencing token.

    Every write that takes one is refused with ``StaleRow`` once somebody else has taken the lease, or after it was
    released: stop at once then. A lease that ran out while nobody took it still counts.
    """

    thread_id: str
    owner: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadRow:
    """One conversation. ``owner`` and ``key`` name it; ``platform`` is what the key says before its first colon."""

    id: str
    owner: str
    key: str
    platform: str
    agent: str
    settings: Mapping[str, object] = field(default_factory=dict)
    session_id: str | None = None
    incarnation: int = 0
    """How many sandboxes it has had. ``<id>:<incarnation + 1>`` is a good idempotency key for making the next one."""
    sleep_state: SleepState = SleepState.NONE
    preview_url: str | None = None
    """Where a program in its sandbox can be seen, what lets one in there, and until when: a copy of what was last
    handed out, for the next who asks. It ends with the sandbox, and names nothing."""
    preview_token: str | None = None
    preview_expires_at: float | None = None
    resume_failures: int = 0
    last_error: str | None = None
    lease_owner: str | None = None
    lease_expires_at: float | None = None
    generation: int = 0
    last_seq: int = 0
    """The number of its newest event."""
    inbox: int = 0
    """Grows by one with each message and each request: who holds the lease has something to look at."""
    last_activity_at: float
    created_at: float
    updated_at: float
    deleted_at: float | None = None
    workspace: Mapping[str, object] | None = None
    """What its sandbox was given to begin with; None until that is done. Forgotten with the sandbox."""
    events_bytes: int = 0
    """What its events take in the database."""
    pruned_seq: int = 0
    """The number of the newest event that was forgotten, with all before it, since there were too many."""
    resumed_at: float | None = None
    """When its sandbox or its agent was last woken, started again or made anew."""
    destroyed_at: float | None = None
    """When it last lost a sandbox."""
    healthy_at: float | None = None
    """When sandbox and agent were last seen to answer; that is looked at before each turn."""

    @property
    def lease(self) -> Lease:
        """The lease that this row shows; of use only to who has just taken it."""
        return Lease(self.id, self.lease_owner or "", self.generation)


_FRESH_AFTER = "fresh_after"


def fresh_after(row: ThreadRow, channel: str) -> int:
    """Return the number of the event after which a channel's agent has begun anew; 0: it never has."""
    numbers = row.settings.get(_FRESH_AFTER)
    number = numbers.get(channel) if isinstance(numbers, Mapping) else None
    return number if isinstance(number, int) else 0


def with_fresh_after(row: ThreadRow, channel: str) -> Mapping[str, object]:
    """Return the thread's settings, with its newest event as that of the channel."""
    numbers = row.settings.get(_FRESH_AFTER)
    before = numbers if isinstance(numbers, Mapping) else {}
    return {**row.settings, _FRESH_AFTER: {**before, channel: row.last_seq}}


class ThreadChange(TypedDict, total=False):
    """What ``ThreadStore.change`` may set. The session, its preview, errors and leases have methods of their own."""

    agent: str
    settings: Mapping[str, object]
    sleep_state: SleepState
    workspace: Mapping[str, object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRow:
    """One line of talk inside a thread, with an agent's conversation of its own."""

    thread_id: str
    channel: str
    agent_session_id: str | None = None
    agent_status: str = "idle"
    title: str | None = None
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class Standing:
    """A thread with one of its channels and its session, each as far as there is one."""

    thread: ThreadRow
    channel: ChannelRow | None
    session: SessionRow | None


class ChannelChange(TypedDict, total=False):
    agent_session_id: str | None
    agent_status: str
    title: str | None


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message from a user. ``id`` is the client's own, and names it for ever: sent again, it is the same message."""

    id: str
    text: str
    author: str | None = None
    channel: str = DEFAULT_CHANNEL
    attachments: Sequence[str] = ()
    """Ids of files that were uploaded to this thread."""
    model: str | None = None
    mode: Mode = Mode.QUEUE


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    thread_id: str
    id: str
    position: int
    """Messages of a thread are worked on in this order."""
    channel: str
    author: str | None
    text: str
    attachments: Sequence[str]
    model: str | None
    mode: Mode
    status: MessageStatus
    turn_id: str | None
    seq: int | None
    """The number of its ``message.create`` event, once it is in a turn."""
    hash: str
    at: float
    updated_at: float
    after: int | None = None
    """All events that tell of it have greater numbers; None where that is not known. In no column."""


@dataclass(frozen=True, slots=True)
class Put:
    """What became of ``MessageStore.put``."""

    message: MessageRow
    new: bool
    thread: ThreadRow
    """As it was in the moment of storing. Try to take its lease: ``Conflict`` means that there is a holder, and it
    sees the message before it can let go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRow:
    id: str
    thread_id: str
    channel: str
    prompt: str
    attachments: Sequence[str]
    model: str | None
    state: TurnState
    accepted: bool
    """Whether the agent is known to have taken up the prompt."""
    agent_session_id: str | None
    cursor: str
    stop_reason: StopReason | None
    """How it has ended; None until then."""
    error: Mapping[str, object] | None
    """{code, message}, as in the ``message.finalize`` event."""
    attempts: int
    artifacts: Sequence[str]
    answer: str | None
    """What the agent said, thinking left out; there once the turn has ended."""
    reverted: bool
    first_seq: int
    """The number of its first event: turns of a thread are in this order."""
    last_seq: int
    created_at: float
    started_at: float | None
    """When the agent was known to have accepted the prompt."""
    ended_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadEventRow:
    """One event, numbered per thread from 1 without holes. ``kind`` and ``data`` as in ``vocabulary.turn_events``."""

    thread_id: str
    seq: int
    turn_id: str | None
    channel: str
    kind: str
    data: Mapping[str, object]
    at: float


@dataclass(frozen=True, slots=True)
class ThreadEventPage:
    events: list[ThreadEventRow]
    newest: int
    """The number of the thread's newest event in the moment of reading."""
    full: bool
    """Whether there may be more that had no room."""
    pruned: int = 0
    """The number of the newest event that was forgotten, with all before it."""

    @property
    def next(self) -> int:
        """Read on after this one. It moves on also past events that were not wanted."""
        return self.events[-1].seq if self.full else self.newest


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """One message of the transcript. ``role`` is ``user`` or ``agent``."""

    role: str
    text: str
    channel: str
    turn_id: str
    author: str | None
    at: float


class FileKind(StrEnum):
    UPLOAD = "upload"
    ARTIFACT = "artifact"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFileRow:
    """A file that belongs to a thread; its bytes are at ``path``, relative to the state directory's files."""

    id: str
    thread_id: str
    kind: FileKind
    name: str
    size: int
    sha256: str
    path: str
    turn_id: str | None = None
    created_at: float = 0.0
    """Set by the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """Something that whoever holds the lease must do: ``abort``, ``answer``, ``revert``, … ``kind`` is the caller's."""

    id: str
    thread_id: str
    kind: str
    data: Mapping[str, object]
    at: float
    done_at: float | None = None
    result: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    id: str
    started_at: float
    heartbeat_at: float
