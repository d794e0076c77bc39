"""What goes into and comes out of the thread service. Plain frozen data: no I/O, no framework."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.sessions.network import NetworkPolicy
from holdfast.sessions.types import SleepPolicy
from holdfast.threads.keys import DEFAULT_CHANNEL


class Mode(StrEnum):
    """What becomes of a message that comes while a turn is running."""

    QUEUE = "queue"
    """A turn of its own, after this one."""
    STEER = "steer"
    """Into the running turn, where the agent can; else as ``queue``."""
    COLLECT = "collect"
    """Joined with others that wait into one turn, after this one."""


class MessageStatus(StrEnum):
    QUEUED = "queued"
    IN_TURN = "in_turn"
    DONE = "done"
    FAILED = "failed"
    CANCELED = "canceled"


class TurnState(StrEnum):
    """``prompted`` is written before the agent is asked, so that nobody asks again who does not know the answer."""

    QUEUED = "queued"
    PREPARING = "preparing"
    PROMPTED = "prompted"
    RUNNING = "running"
    COLLECTING = "collecting"
    ENDED = "ended"


class Rest(StrEnum):
    """How a thread's sandbox is, as far as the thread has to do with it."""

    NONE = "none"
    """There is none yet, or none any more: the next message brings one, with the history."""
    AWAKE = "awake"
    PAUSED = "paused"
    HIBERNATED = "hibernated"


class How(StrEnum):
    """What had to be done until a thread could be talked to."""

    CREATED = "created"
    """Its first sandbox was made."""
    REUSED = "reused"
    """All was there."""
    RESUMED = "resumed"
    """The sandbox was woken, or the agent in it started again; files and agent session are the same."""
    RECREATED = "recreated"
    """The sandbox was certainly gone: there is a new one, and its agent knows the history."""
    SESSION_REPLACED = "session_replaced"
    """The sandbox is the same; the agent had lost its session, and a new one knows the history."""


@dataclass(frozen=True, slots=True)
class ThreadOptions:
    """How a thread is set up when its first message makes it; what is None takes the configured default.

    Later calls may name other options: they hold from the next sandbox on. ``model`` holds from the next turn on.
    """

    agent: str | None = None
    image: str | None = None
    model: str | None = None
    cpus: float | None = None
    memory_mb: int | None = None
    pids: int | None = None
    disk_mb: int | None = None
    network: NetworkPolicy | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    sleep: SleepPolicy | None = None
    """None: that of the key's platform."""


@dataclass(frozen=True, slots=True)
class ChannelView:
    """One agent session of a thread."""

    channel: str
    agent_session_id: str | None
    status: str
    """An ``AgentStatus``."""
    title: str | None


@dataclass(frozen=True, slots=True)
class ThreadView:
    """A thread as its owner may see it."""

    id: str
    key: str
    owner: str
    platform: str
    agent: str
    session_id: str | None
    rest: Rest
    channels: Sequence[ChannelView]
    options: ThreadOptions
    preview_url: str | None
    resume_failures: int
    """How often in a row its sandbox could not be brought back."""
    last_error: str | None
    last_seq: int
    created_at: float
    last_activity_at: float


@dataclass(frozen=True, slots=True)
class Resolved:
    """A thread that can be talked to."""

    thread: ThreadView
    session_id: str
    agent_session_id: str
    how: How
    why: str | None
    """For everything but ``reused``: what was found, in words."""


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


@dataclass(frozen=True, slots=True)
class MessageView:
    id: str
    channel: str
    author: str | None
    text: str
    attachments: Sequence[str]
    model: str | None
    mode: Mode
    status: MessageStatus
    turn_id: str | None
    """None until it is in a turn."""
    at: float


@dataclass(frozen=True, slots=True)
class TurnView:
    id: str
    channel: str
    state: TurnState
    prompt: str
    accepted: bool
    """Whether the agent is known to have taken up the prompt."""
    attempts: int
    reason: str | None
    """A ``StopReason``, when it has ended."""
    error: Mapping[str, object] | None
    """{code, message}, where the reason is ``error``."""
    artifacts: Sequence["FileView"]
    started_at: float
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class EventView:
    """One thing that happened in a thread; ``kind`` and ``data`` as ``protocol.turn_events`` says."""

    seq: int
    turn_id: str | None
    channel: str | None
    kind: str
    data: Mapping[str, object]
    at: float


@dataclass(frozen=True, slots=True)
class EventsPage:
    """``next`` is what to ask for after these; ``newest`` is the thread's newest of all."""

    events: Sequence[EventView]
    next: int
    newest: int


@dataclass(frozen=True, slots=True)
class FileView:
    """A file of a thread: uploaded for the agent, or (with a turn) made by it."""

    id: str
    name: str
    size: int
    sha256: str
    turn_id: str | None
    created_at: float


@dataclass(frozen=True, slots=True)
class Line:
    """One message of the transcript; ``role`` is ``user`` or ``agent``."""

    role: str
    text: str
    author: str | None
    turn_id: str | None
    at: float
