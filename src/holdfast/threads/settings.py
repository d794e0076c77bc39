"""What the thread service can be told. The daemon fills it from its configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.agents.permissions import Rule
from holdfast.broker.accounts import SpendingLimits
from holdfast.threads.types import IdlePolicy

EVERYBODY = "default"
"""The owner that stands for all others in ``AgentDefaults.owner_limits``."""


@dataclass(frozen=True, slots=True)
class AgentDefaults:
    """What holds for the agents of all threads, as far as a thread's own options do not say more."""

    model: str | None = None
    model_preferences: Sequence[str] = ()
    allowed_models: Sequence[str] = ("*",)
    """No thread can have any other."""
    thread_limits: SpendingLimits = field(default_factory=SpendingLimits)
    """Of each thread; its own can only be tighter."""
    owner_limits: Mapping[str, SpendingLimits] = field(default_factory=dict)
    """Of all threads of an owner together, by owner; ``EVERYBODY`` for who is not named."""
    owner_models: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Patterns of models that an owner's threads may use, by owner in the same way; of all, where nobody is named."""
    permissions: Sequence[Rule] = ()
    system_prompt_file: Path | None = None
    """Instead of the built-in rules of the house."""
    persona_dir: Path | None = None
    persona: Sequence[str] = ()
    """Names of files there, for threads that choose none."""
    image: str | None = None
    """The image of threads that choose none."""
    agents_bin: str | None = None
    """A directory with agents' programs that sandboxes see which show the host's own; first in their PATH."""


@dataclass(frozen=True, slots=True)
class ThreadSettings:
    """Defaults, limits and deadlines of threads."""

    idle: IdlePolicy = field(default_factory=IdlePolicy)
    platform_idle: Mapping[str, IdlePolicy] = field(default_factory=dict)
    """Where a platform differs, by what stands before the first colon of its keys."""
    agents: AgentDefaults = field(default_factory=AgentDefaults)

    retry_seconds: float = 2.0
    """How long to wait before a sandbox that could not be had is tried again; and how long in all:"""
    resolve_seconds: float = 60.0
    attempt_seconds: float = 20.0
    """How long one try may take that was begun within that time. What is made has limits of its own:"""
    make_seconds: float = 300.0
    """A sandbox;"""
    start_seconds: float = 240.0
    """an agent, with the end of one that hangs: more than any adapter gives it;"""
    lease_seconds: float = 30.0
    """After how long without a word from its daemon a thread is another one's. Renewed three times as often."""
    linger_seconds: float = 5.0
    """For how long a thread's lease is kept after its work is done: who talks to it again soon need not wait for it."""
    poll_seconds: float = 1.0
    """How often to look for work that nobody does."""
    ask_seconds: float = 90.0
    """How long to wait for another daemon to do what only it can do."""
    janitor_seconds: float = 60.0

    heartbeat_seconds: float = 5.0
    node_silent_seconds: float = 20.0
    """After how long without a heartbeat the threads of a host say that it is silent."""
    node_grace_seconds: float = 600.0
    """And after how long their sandboxes are given up, and made anew elsewhere when they are needed."""
    keep_aside_seconds: float = 7 * 86400.0
    """How long a host that was given up and came back keeps the files of such a sandbox."""
    half_made_seconds: float = 900.0
    """How old a sandbox must be that was made for a thread and never became its own, before it is removed."""

    agent_memory_mb: Mapping[str, int] = field(default_factory=dict)
    """Of sandboxes of threads that name no limit, by agent; for others the daemon's default holds."""
    agent_idle_seconds: float = 600.0
    """After how long without a turn a channel's agent is stopped."""
    turn_seconds: float = 6 * 3600.0
    """How long a turn may take, before it is aborted."""
    abort_seconds: float = 30.0
    """How long an agent may take to end an aborted turn, before it is ended without it."""
    question_seconds: float = 15 * 60.0
    """How long a question is open that says nothing of it itself."""
    collect_seconds: float = 300.0
    """How long fetching a turn's new files may take."""
    clone_seconds: float = 600.0
    """a thread's repository, with all tries to fetch it."""

    events_bytes: int = 256_000_000
    """How much of a thread's events is kept, over all its turns; and how many. A turn may tell half of that."""
    events_count: int = 500_000
    events_per_second: float = 200.0
    """How fast a turn may tell for long."""
    files_bytes: int = 10 << 30
    """How much of a thread's uploads and artifacts is kept, over all its turns; and how many."""
    files_count: int = 5000
    history_lines: int = 400
    """How many of the last messages an agent is told of that has lost its conversation."""
    max_file_bytes: int = 1 << 30
    keep_uploads_seconds: float = 24 * 3600.0
    """How long a file is kept that no message names."""
    keep_requests_seconds: float = 3600.0
    """How long the result of a request to another daemon is kept: much longer than anybody waits for it."""
    keep_deleted_seconds: float = 60.0
    """How long the rows of a deleted thread are kept."""

    def idle_of(self, platform: str) -> IdlePolicy:
        return self.platform_idle.get(platform, self.idle)
