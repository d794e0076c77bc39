"""What the client gives back about threads: plain frozen data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.sdk.sessions.results import of_wire
from holdfast.vocabulary.turn_events import Kind, StopReason


@dataclass(frozen=True, slots=True)
class Usage:
    """Calls to models, summed up. ``input_tokens`` has ``cached_tokens`` in it."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class UsageLine(Usage):
    """``what`` is a thread's key, a model's id, a day (UTC) or an owner; ``owner`` is a thread's."""

    what: str = ""
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class UsageReport:
    by: str
    lines: Sequence[UsageLine]
    total: Usage
    """Of all, also of what found no place among the lines."""


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """A thread as it was when the daemon last told of it."""

    id: str
    key: str
    owner: str
    platform: str
    agent: str
    session_id: str | None
    sleep_state: str
    """``awake``, ``paused``, ``hibernated``, or ``none``: there is no sandbox, and the next message brings one."""
    channels: Sequence[Mapping[str, Any]]
    options: Mapping[str, Any]
    last_error: str | None
    last_seq: int
    created_at: datetime
    last_activity_at: datetime
    preview_url: str | None = None
    """Where a program in its sandbox can be seen: the port that its options or the daemon's configuration name."""
    preview_token: str | None = field(default=None, repr=False)
    """Lets a browser in there, as ``?token=…`` at the end of the address; None in lists, and for keys that may only
    look."""
    preview_expires_at: datetime | None = None
    """When the token expires. ``info`` and ``resolve`` give one that is good for a minute at least."""
    resume_failures: int = 0
    usage: Usage | None = None
    """Its calls to models, in all; None in what ``resolve`` returns."""
    channel: str | None = None
    """In which something happened last."""
    resumed_at: datetime | None = None
    """When its sandbox or its agent was last woken, started again or made anew."""
    destroyed_at: datetime | None = None
    """When it last lost a sandbox."""
    healthy_at: datetime | None = None
    """When sandbox and agent were last seen to answer."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A thread that can be talked to. ``how`` is created, reused, resumed, recreated or session_replaced."""

    thread: ThreadInfo
    session_id: str
    agent_session_id: str
    how: str
    why: str | None
    urls: Mapping[str, str] = field(default_factory=dict)
    """The addresses of its sandbox by name, such as ``terminal`` and those of its tunnels."""


@dataclass(frozen=True, slots=True)
class ThreadEvent:
    """One thing that happened in a thread. ``kind`` says which fields ``data`` has."""

    seq: int
    kind: str
    turn_id: str | None
    channel: str | None
    at: datetime
    data: Mapping[str, Any]

    @property
    def text(self) -> str:
        """What the agent says in this event; empty for all but text, and for its thoughts."""
        return str(self.data["text"]) if self.kind == Kind.TEXT_DELTA and not self.data.get("thought") else ""


@dataclass(frozen=True, slots=True)
class MessageInfo:
    id: str
    channel: str
    author: str | None
    text: str
    attachments: Sequence[str]
    model: str | None
    mode: str
    status: str
    """``queued``, ``in_turn``, ``done``, ``failed`` or ``canceled``."""
    turn_id: str | None
    at: datetime
    after: int | None = None
    """All events of it have greater numbers."""


@dataclass(frozen=True, slots=True)
class ThreadFile:
    """A file of a thread: uploaded, or (with a turn) made by the agent."""

    id: str
    name: str
    size: int
    sha256: str
    turn_id: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class TurnInfo:
    id: str
    channel: str
    state: str
    prompt: str
    accepted: bool
    attempts: int
    reason: str | None
    error: Mapping[str, str] | None
    artifacts: Sequence[ThreadFile]
    answer: str | None
    reverted: bool
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    usage: Usage = field(default_factory=Usage)
    """Its calls to models so far."""


@dataclass(frozen=True, slots=True)
class Diff:
    """``source`` is ``agent`` (what a turn has changed) or ``git`` (what differs from the last commit)."""

    diff: str
    source: str
    truncated: bool


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """One of the agent's own."""

    name: str
    description: str


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """``demo`` is the bundled stand-in, which is no model. Of a model of the agent's own, only its id is known."""

    id: str
    name: str
    provider: str | None = None
    context_tokens: int | None = None
    output_tokens: int | None = None
    demo: bool = False


@dataclass(frozen=True, slots=True)
class Models:
    """``current`` is what is asked where a message names none; None: the agent decides."""

    agent: str
    models: Sequence[ModelInfo]
    current: str | None

    @property
    def is_demo(self) -> bool:
        """Whether what is used is the bundled stand-in, and no real model."""
        return any(one.demo and one.id == self.current for one in self.models)


@dataclass(frozen=True, slots=True)
class Line:
    """One message of the transcript. ``role`` is ``user`` or ``agent``."""

    role: str
    text: str
    channel: str
    turn_id: str
    author: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How a message was answered. ``reason`` is ``end_turn``, ``error`` or ``canceled``."""

    text: str
    reason: str
    error: Mapping[str, str] | None
    artifacts: Sequence[ThreadFile]
    turn_id: str | None
    """None if it was canceled before it was in one."""
    usage: Usage = field(default_factory=Usage)
    """Its calls to models."""

    @property
    def ok(self) -> bool:
        return self.reason == StopReason.END_TURN


def models_of_wire(data: Mapping[str, Any]) -> Models:
    return Models(data["agent"], [of_wire(ModelInfo, one) for one in data["models"]], data["current"])


def turn_of_wire(data: Mapping[str, Any]) -> TurnInfo:
    files = [of_wire(ThreadFile, one) for one in data["artifacts"]]
    return of_wire(TurnInfo, {**data, "artifacts": files, "usage": of_wire(Usage, data.get("usage", {}))})


def thread_of_wire(data: Mapping[str, Any]) -> ThreadInfo:
    usage = data.get("usage")
    return of_wire(ThreadInfo, {**data, "usage": usage and of_wire(Usage, usage)})


def report_of_wire(data: Mapping[str, Any]) -> UsageReport:
    lines = [of_wire(UsageLine, one) for one in data["lines"]]
    return UsageReport(data["by"], lines, of_wire(Usage, data["total"]))
