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

AgentSessionId = NewType("AgentSessionId", str)
"""The agent's own name for a conversation; opaque to everybody but its adapter."""

Cursor = NewType("Cursor", str)
"""A place in the stream of one turn's events; opaque to everybody but the adapter that gave it."""

START: Cursor = Cursor("")
"""Before the first event of a turn."""


class Sandbox(Protocol):
    """What an adapter may use of the session service."""

    @property
    def processes(self) -> Processes: ...

    @property
    def files(self) -> SessionFiles: ...

    @property
    def ports(self) -> Ports: ...


@dataclass(frozen=True, slots=True)
class Brief:
    """What an agent is told before its first prompt. It may be another one from turn to turn.

    Where an agent must be started again to take in a change, ``health`` and ``resume_session`` raise ``AgentDown``
    with that reason, and ``start`` does it: so it happens between turns, and only if something has changed. While a
    turn is running (``Place.in_turn``), an agent that answers is left as it was started.
    """

    workdir: str = "/workspace"
    system_prompt: str = ""
    """The rules of the house, in the order of their files. Additional to the agent's own."""
    models: Sequence[Model] = ()
    """What the broker offers this thread. The first is what is used where a prompt names none."""
    permissions: Sequence[Rule] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """For the agent's process and what it starts; never a secret."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an agent runs: one session, and in it one channel, which has an agent process of its own."""

    session_id: str
    sandbox: Sandbox
    channel: str = "default"
    brief: Brief = field(default_factory=Brief)
    in_turn: bool = False
    """The agent may be at work on a turn: it is not started again only because the brief is another one now."""


@dataclass(frozen=True, slots=True)
class Said:
    """One message of the conversation so far, for an agent that has lost it. ``role`` is ``user`` or ``agent``."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is asked. ``id`` names it for ever: a prompt with an id that the agent has seen is not run again."""

    id: str
    text: str
    attachments: Sequence[str] = ()
    """Paths inside the sandbox."""
    model: str | None = None
    """A ``Model.id`` of the brief, or None for the first there."""


@dataclass(frozen=True, slots=True)
class Told:
    """An event, and the cursor to read on from after it is safely stored."""

    cursor: Cursor
    event: TurnEvent


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an agent can do beyond answering."""

    steer: bool = False
    """Take a message into the turn that is running."""
    revert: bool = False
    """Take back the last turn, files included."""
    diff: bool = False
    """Tell what a turn has changed; for others, git tells what has changed in the working directory."""
    permissions: Sequence[str] = ()
    """Of ``permissions.KINDS``, those that it asks for before it uses them, where ``Brief.permissions`` says so. Rules
    about others never come to the adapter: who makes the brief has refused them."""
    models: Sequence[str] = field(default_factory=tuple)
    """Of an agent with models of its own, which the broker does not serve."""


@dataclass(frozen=True, slots=True)
class Command:
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
    """Whether it may be started in a sandbox before anybody knows whose that will be, by another ``Place.sandbox`` than
    it is used by later: its adapter remembers nothing of that one, and notices itself where the brief is another."""

    @property
    @abstractmethod
    def abilities(self) -> Abilities:
        """What this agent can do."""

    @abstractmethod
    async def start(self, place: Place) -> None:
        """Make sure that the agent runs and answers; returns at once if it does. Its readiness is told by itself.

        One that runs and does not answer is ended first: TERM, five seconds, KILL.
        """

    async def start_ahead(self, place: Place) -> None:
        """``start``, before anybody knows whose sandbox it will be; only where ``starts_ahead``. Also does what is slow
        the first time, as far as it leaves no trace."""
        await self.start(place)

    @abstractmethod
    async def health(self, place: Place) -> None:
        """Returns if it runs and answers; raises ``AgentDown`` if not. Cheap: asked before every turn."""

    @abstractmethod
    async def create_session(self, place: Place, history: Sequence[Said] = ()) -> AgentSessionId:
        """A new conversation that knows ``history``, oldest first, as if it had been there.

        ``AgentDown`` where its process is not there: nothing is left behind, and it may be asked again after ``start``.
        """

    @abstractmethod
    async def resume_session(self, place: Place, session: AgentSessionId) -> None:
        """Make sure that the agent has this conversation at hand; raises ``AgentSessionMissing`` if it is gone.

        Asked before every turn, instead of ``health``: as cheap, and with the same deadline. The process comes first:
        where it is not there, this is ``AgentDown``, whether the conversation is known or not. So that after
        ``AgentSessionMissing`` there is somebody who can begin a new one.
        """

    @abstractmethod
    async def prompt(self, place: Place, session: AgentSessionId, prompt: Prompt) -> None:
        """Returns when the agent has accepted the prompt. One that it had accepted before is left as it is.

        ``AgentDown`` and ``AgentSessionMissing`` from here mean that it was certainly not accepted. After anything
        else, ``accepted`` tells.
        """

    @abstractmethod
    async def accepted(self, place: Place, session: AgentSessionId, prompt_id: str) -> bool:
        """Whether the agent has ever taken up this prompt, or was steered by it. Does not need the agent's process.

        ``AgentSessionMissing`` if the conversation is gone, and with it the answer: that is no "no".
        """

    @abstractmethod
    def events(
        self, place: Place, session: AgentSessionId, prompt_id: str, after: Cursor
    ) -> AsyncGenerator[Told, None]:
        """What happens in the turn of an accepted prompt, from after that cursor on; ends after ``message.finalize``.

        Each event is told exactly once per cursor: who reads on from the cursor of the last event that he stored
        misses nothing and sees nothing twice, whoever was reading before. An agent that dies in mid-turn is told by
        ``AgentDown`` from here, and never by silence.
        """

    @abstractmethod
    async def abort(self, place: Place, session: AgentSessionId, prompt_id: str) -> None:
        """End the turn soon; its events then close with ``canceled``. One that has ended is left alone."""

    @abstractmethod
    async def answer(self, place: Place, session: AgentSessionId, question_id: str, answer: str) -> None:
        """Answer a question that was asked in an event. Twice is fine; the first counts."""

    async def steer(self, place: Place, session: AgentSessionId, prompt: Prompt) -> None:
        """Put a message into the running turn. Only where ``abilities.steer``. Twice is fine: it is read once."""
        raise AgentUnsupported(f"the agent {self.name} cannot be steered; send the message with mode queue")

    async def revert(self, place: Place, session: AgentSessionId, prompt_id: str) -> None:
        """Undo the turn of this prompt and all after it. Only where ``abilities.revert``. Twice in a row is fine."""
        raise AgentUnsupported(f"the agent {self.name} cannot take back a turn")

    async def diff(self, place: Place, session: AgentSessionId, prompt_id: str) -> str:
        """What the turn of this prompt has changed, as a unified diff. Only where ``abilities.diff``."""
        raise AgentUnsupported(f"the agent {self.name} cannot tell what a turn has changed")

    async def commands(self, place: Place, session: AgentSessionId) -> Sequence[Command]:
        """Its slash commands, in this conversation."""
        return ()

    @abstractmethod
    async def stop(self, place: Place) -> None:
        """End the agent's process: TERM, five seconds, KILL. Its sessions stay. One that is not there is success."""
