"""What goes into and comes out of the thread service. Plain frozen data: no I/O, no framework."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.agents.base import SlashCommand
from holdfast.broker.accounts import SpendingLimits
from holdfast.records.network import NetworkPolicy
from holdfast.records.sleep import IdlePolicy as IdlePolicy
from holdfast.records.threads import ChannelRow, SleepState, ThreadFileRow, ThreadRow, TurnRow
from holdfast.records.usage import UsageSum
from holdfast.vocabulary.turn_events import Kind, TurnEvent


class How(StrEnum):
    """What had to be done until a thread could be talked to."""

    CREATED = "created"
    """Its first sandbox was made."""
    REUSED = "reused"
    """All was there."""
    RESUMED = "resumed"
    """The sandbox was woken, or the agent in it started again; files and conversation are the same."""
    RECREATED = "recreated"
    """The sandbox was certainly gone: there is a new one, and its agent knows the history."""
    SESSION_REPLACED = "session_replaced"
    """The sandbox is the same; the agent had lost its conversation, and a new one knows the history."""


def sleep_event(state: SleepState) -> TurnEvent:
    """The event that says that a thread's sandbox sleeps or wakes; it is written in the transaction of the change."""
    return TurnEvent(Kind.SLEEP, {"sleep_state": state.value})


@dataclass(frozen=True, slots=True)
class Repo:
    """A git repository that a thread works on: cloned into ``/workspace/<its name>``, where its agent then works."""

    url: str
    branch: str | None = None
    ref: str | None = None
    """A commit or tag to begin at, on that branch."""


@dataclass(frozen=True, slots=True)
class ThreadOptions:
    """How a thread is set up when its first message makes it; what is None takes the configured default.

    Later calls may name other options. What is about the sandbox (image, cpus, memory_mb, pids, disk_mb, network, env,
    metadata, repo) holds from the next sandbox on; all else from the next turn on.
    """

    agent: str | None = None
    image: str | None = None
    model: str | None = None
    """The id of the model that is asked, such as ``anthropic/claude-…``, where a message names none."""
    model_preferences: Sequence[str] | None = None
    """Ids to go on with, in this order, where the one that was asked for cannot answer."""
    allowed_models: Sequence[str] | None = None
    """Patterns of ids, with ``*``. What the daemon does not allow is not allowed by this."""
    limits: SpendingLimits | None = None
    """Of calls to models. Those of the daemon hold in any case."""
    permissions: Sequence[str] | None = None
    """Rules as ``agents.permissions`` has them; the daemon's come after these."""
    repo: Repo | None = None
    persona: Sequence[str] | None = None
    """Names of the daemon's persona files, in the order in which the agent reads them."""
    system_prompt: str | None = None
    """More rules for the agent, after those of the house and the persona."""
    retry_broken_streams: bool | None = None
    """Whether an answer that broke off in the middle is asked for once more."""
    preview_port: int | None = None
    """The port of its sandbox that its preview leads to."""
    cpus: float | None = None
    memory_mb: int | None = None
    pids: int | None = None
    disk_mb: int | None = None
    network: NetworkPolicy | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Of the thread's sandbox, as those of a session; ``thread`` is its key in any case."""
    idle: IdlePolicy | None = None
    """None: that of the key's platform."""


@dataclass(frozen=True, slots=True)
class ThreadView:
    """A thread as its owner may see it: its row, and what belongs to it."""

    row: ThreadRow
    channels: Sequence[ChannelRow]
    options: ThreadOptions
    """The row's settings, parsed."""
    usage: UsageSum | None = None
    """What its calls to models were in all; None where they were not added up, as in the reply to a resolve."""

    @property
    def channel(self) -> str | None:
        """The channel in which something happened last; None before the first message."""
        return max(self.channels, key=lambda one: one.updated_at).channel if self.channels else None


@dataclass(frozen=True, slots=True)
class Resolved:
    """A thread that can be talked to."""

    thread: ThreadView
    session_id: str
    agent_session_id: str
    how: How
    why: str | None
    """What was found, in words."""


@dataclass(frozen=True, slots=True)
class TurnView:
    """A turn as its owner may see it: its row, the files that it made, and its calls to models."""

    row: TurnRow
    artifacts: Sequence[ThreadFileRow]
    usage: UsageSum


@dataclass(frozen=True, slots=True)
class AgentCommands:
    """The slash commands of a thread's agent."""

    agent: str
    commands: Sequence[SlashCommand]
