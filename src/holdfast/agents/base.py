"""The contract of an agent: how the host talks to a coding agent that runs inside a session.

An adapter runs on the host and drives the agent over the session's link (processes, files, ports). It keeps nothing
that it could not lose: everything it needs to go on is in the sandbox, in the agent's session id, and in the cursor
that came with the last event. So a daemon that dies in mid-turn is replaced by another one, which reads on from that
cursor while the agent never stopped working.

``holdfast.agents.conformance`` is the suite that every adapter passes.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NewType, Protocol

from holdfast.agents.permissions import Rule
from holdfast.errors import AgentUnsupported
from holdfast.sessions.use.files import SessionFiles
from holdfast.sessions.use.ports import Ports
from holdfast.sessions.use.processes import Processes
from holdfast.vocabulary.models import Model
from holdfast.vocabulary.turn_events import TurnEvent

ConversationId = NewType("ConversationId", str)
"""The agent's own id of a conversation; only its adapter knows what it means."""

Cursor = NewType("Cursor", str)
"""A position in the stream of one turn's events; only the adapter that made it knows what it means."""

START: Cursor = Cursor("")
"""Before the first event of a turn."""


class Sandbox(Protocol):
    """The part of the session service that an adapter may use."""

    @property
    def processes(self) -> Processes: ...

    @property
    def files(self) -> SessionFiles: ...

    @property
    def ports(self) -> Ports: ...


@dataclass(frozen=True, slots=True)
class Brief:
    """The instructions and settings that an agent gets before its first prompt. They may change from turn to turn.

    Where an agent must be started again to take in a change, ``health`` and ``resume_conversation`` raise ``AgentDown``
    with that reason, and ``start`` does it: so it happens between turns, and only if something has changed. While a
    turn is running (``Place.in_turn``), an agent that answers is left as it was started.
    """

    workdir: str = "/workspace"
    system_prompt: str = ""
    """The operator's rules, in the order of their files. They are added to the agent's own system prompt."""
    models: Sequence[Model] = ()
    """The models that the broker offers this thread. A prompt that names no model gets the first one."""
    permissions: Sequence[Rule] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for the agent's process and for what it starts; never a secret."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place where an agent runs: one session, and in it one channel, which has an agent process of its own."""

    session_id: str
    sandbox: Sandbox
    channel: str = "default"
    brief: Brief = field(default_factory=Brief)
    in_turn: bool = False
    """The agent may be at work on a turn, so a changed brief is no reason to start it again now."""


@dataclass(frozen=True, slots=True)
class PastMessage:
    """One message of the conversation so far, for an agent that has lost it. ``role`` is ``user`` or ``agent``."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A message for the agent. ``id`` names it for ever: a prompt with an id that the agent has seen is not run
    again."""

    id: str
    text: str
    attachments: Sequence[str] = ()
    """Paths inside the sandbox."""
    model: str | None = None
    """A ``Model.id`` of the brief, or None for the first there."""


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """An event, and the cursor to read on from after it is safely stored."""

    cursor: Cursor
    event: TurnEvent


@dataclass(frozen=True, slots=True)
class Abilities:
    """The optional features that an agent has."""

    steer: bool = False
    """Take a message into the turn that is running."""
    revert: bool = False
    """Take back the last turn, files included."""
    diff: bool = False
    """Report what a turn has changed. For other agents, git reports what has changed in the working directory."""
    permissions: Sequence[str] = ()
    """Of ``permissions.KINDS``, those that it asks for before it uses them, where ``Brief.permissions`` says so. Rules
    about other kinds never come to the adapter: they are refused when the brief is made."""
    models: Sequence[str] = field(default_factory=tuple)
    """The models of an agent that brings its own, which the broker does not serve."""


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A slash command. A prompt whose text begins with ``/name`` is that command, with the rest as its arguments."""

    name: str
    description: str = ""


class Agent(ABC):
    """One kind of agent. All methods may be called from several tasks at once, for different places.

    Errors: ``AgentDown`` where its process is not there or does not answer: ``start`` is the remedy.
    ``AgentSessionMissing`` where the agent certainly does not know that session: a new one is the remedy.
    ``AgentFailed`` where it answers with an error, or with something that makes no sense. What the session service
    raises (``SandboxLost``, ``SessionGone``, …) passes through. No other exception leaves an adapter, and every call
    has a deadline of its own.
    """

    name: ClassVar[str]
    starts_ahead: ClassVar[bool] = False
    """Whether it may be started in a sandbox of the pool, before that sandbox belongs to a thread. It is then used
    through another ``Place.sandbox`` and perhaps with another brief, and its adapter must cope with both."""

    @property
    @abstractmethod
    def abilities(self) -> Abilities:
        """The optional features of this agent."""

    @abstractmethod
    async def start(self, place: Place) -> None:
        """Make sure that the agent runs and answers; return at once if it does. The agent itself says when it is ready.

        A process that runs and does not answer is ended first: TERM, five seconds, KILL.
        """

    async def start_ahead(self, place: Place) -> None:
        """Do ``start`` before the sandbox belongs to a thread; only where ``starts_ahead`` is set.

        It also does the work that is slow the first time, if that leaves no trace.
        """
        await self.start(place)

    @abstractmethod
    async def health(self, place: Place) -> None:
        """Return if the agent runs and answers; raise ``AgentDown`` if not. It is cheap, as every turn begins with
        it."""

    @abstractmethod
    async def create_conversation(self, place: Place, history: Sequence[PastMessage] = ()) -> ConversationId:
        """Begin a new conversation that knows ``history``, oldest first, as if it had taken part in it.

        Raises ``AgentDown`` if the process is not there: nothing is left behind, and it may be called again after
        ``start``.
        """

    @abstractmethod
    async def resume_conversation(self, place: Place, conversation: ConversationId) -> None:
        """Make sure that the agent has this conversation at hand; raises ``AgentSessionMissing`` if it is gone.

        It is called before every turn, instead of ``health``: it is as cheap and has the same deadline. The process is
        checked first: if it is not there, this raises ``AgentDown``, whether the conversation is known or not. So
        after ``AgentSessionMissing`` there is a process that can begin a new conversation.
        """

    @abstractmethod
    async def prompt(self, place: Place, conversation: ConversationId, prompt: Prompt) -> None:
        """Give the agent a prompt, and return when it has accepted it. One that it accepted before is not run again.

        ``AgentDown`` and ``AgentSessionMissing`` from here mean that it was certainly not accepted. After any other
        error, ``accepted`` gives the answer.
        """

    @abstractmethod
    async def accepted(self, place: Place, conversation: ConversationId, prompt_id: str) -> bool:
        """Whether the agent has ever accepted this prompt, or was steered by it. It works without the agent's process.

        Raises ``AgentSessionMissing`` if the conversation is gone: then nobody can know, which is not a "no".
        """

    @abstractmethod
    def events(
        self, place: Place, conversation: ConversationId, prompt_id: str, after: Cursor
    ) -> AsyncGenerator[AgentEvent, None]:
        """Yield the events of an accepted prompt's turn after that cursor; it ends after ``message.finalize``.

        Each event comes exactly once per cursor: a reader that goes on from the cursor of the last event that it has
        stored misses nothing and sees nothing twice, even if another daemon was reading before. If the agent dies in
        the middle of a turn, this raises ``AgentDown``; it never just stops.
        """

    @abstractmethod
    async def abort(self, place: Place, conversation: ConversationId, prompt_id: str) -> None:
        """End the turn soon; its events then end with ``canceled``. A turn that is over stays as it is."""

    @abstractmethod
    async def answer(self, place: Place, conversation: ConversationId, question_id: str, answer: str) -> None:
        """Answer a question that was asked in an event. A second answer does no harm; the first one counts."""

    async def steer(self, place: Place, conversation: ConversationId, prompt: Prompt) -> None:
        """Put a message into the running turn; only where ``abilities.steer``. A repeated call does no harm."""
        raise AgentUnsupported(f"the agent {self.name} cannot be steered; send the message with mode queue")

    async def revert(self, place: Place, conversation: ConversationId, prompt_id: str) -> None:
        """Undo the turn of this prompt and all after it; only where ``abilities.revert``. It may be repeated."""
        raise AgentUnsupported(f"the agent {self.name} cannot take back a turn")

    async def diff(self, place: Place, conversation: ConversationId, prompt_id: str) -> str:
        """Return what the turn of this prompt has changed, as a unified diff; only where ``abilities.diff``."""
        raise AgentUnsupported(f"the agent {self.name} cannot tell what a turn has changed")

    async def commands(self, place: Place, conversation: ConversationId) -> Sequence[SlashCommand]:
        """Return the agent's slash commands in this conversation."""
        return ()

    @abstractmethod
    async def stop(self, place: Place) -> None:
        """End the agent's process: TERM, five seconds, KILL. Its conversations stay. No process is no error."""
