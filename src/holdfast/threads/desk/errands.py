"""What is asked of whoever holds a thread's lease: resolve, abort, answer, revert, pause, delete, …

An errand is a value, and so is its result. A caller in this process hands them over as they are. Their JSON form is for
the store, by way of which another daemon asks, perhaps an older or a newer one: so a ``kind`` and the names of its
fields stay as they are, and a field that comes later has a default.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, cast

from holdfast.agents.base import SlashCommand
from holdfast.errors import BadInput, by_code
from holdfast.threads import options as kept
from holdfast.threads.commands.git_diff import Diff
from holdfast.threads.types import AgentCommands, How, ThreadOptions

R = TypeVar("R")
T = TypeVar("T")
Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class AgentReady:
    session_id: str
    agent_session_id: str
    how: How
    why: str | None = None
    changed: bool = True
    """Whether the thread's row, or its channel's, was written to."""


@dataclass(frozen=True, slots=True)
class TurnFound:
    turn_id: str | None
    """None: there was none."""


@dataclass(frozen=True, slots=True)
class BegunAnew:
    seq: int
    """The number of the event that says so."""


KINDS: Final[dict[str, "type[Errand[Any]]"]] = {}


@dataclass(frozen=True)
class Errand(Generic[R]):
    """Something that only the holder of the lease can do. ``R`` is the type of its result, which may be None."""

    kind: ClassVar[str]
    result: ClassVar[type[Any] | None]

    def __init_subclass__(cls, kind: str, result: type[Any] | None = None) -> None:
        cls.kind, cls.result = kind, result
        KINDS[kind] = cls

    def to_json(self) -> Json:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Json) -> Self:
        return _parse(cls, data)

    def read_result(self, data: Json) -> R:
        """Return the result that another daemon has written, or raise its error."""
        raise_error(data)
        return cast(R, _parse(self.result, data) if self.result is not None else None)


@dataclass(frozen=True)
class Resolve(Errand[AgentReady], kind="resolve", result=AgentReady):
    """Make the channel's agent ready."""

    channel: str


@dataclass(frozen=True)
class Abort(Errand[TurnFound], kind="abort", result=TurnFound):
    """End the channel's turn soon, if it is this one; None: whichever it is."""

    channel: str
    turn_id: str | None = None


@dataclass(frozen=True)
class AnswerQuestion(Errand[None], kind="answer"):
    question_id: str
    answer: str


@dataclass(frozen=True)
class Revert(Errand[TurnFound], kind="revert", result=TurnFound):
    """Take back a turn and all after it."""

    channel: str
    turn_id: str


@dataclass(frozen=True)
class Pause(Errand[None], kind="pause"):
    """Put the sandbox to sleep."""

    hibernate: bool = False


@dataclass(frozen=True)
class Delete(Errand[None], kind="delete"):
    """Delete the thread with all that it has."""


@dataclass(frozen=True)
class ChangeOptions(Errand[None], kind="options"):
    options: ThreadOptions

    def to_json(self) -> Json:
        return {"options": kept.to_json(self.options)}

    @classmethod
    def from_json(cls, data: Json) -> Self:
        told = data.get("options")
        return cls(kept.from_json(told if isinstance(told, Mapping) else {}))


@dataclass(frozen=True)
class ShowDiff(Errand[Diff], kind="diff", result=Diff):
    """Tell what a turn has changed, by default the last one."""

    channel: str
    turn_id: str | None = None


@dataclass(frozen=True)
class ListCommands(Errand[AgentCommands], kind="commands", result=AgentCommands):
    channel: str

    def read_result(self, data: Json) -> AgentCommands:
        raise_error(data)
        told = data.get("commands")
        rows = [one for one in told if isinstance(one, Mapping)] if isinstance(told, Sequence) else []
        return AgentCommands(str(data["agent"]), [SlashCommand(**row) for row in rows])


@dataclass(frozen=True)
class BeginAnew(Errand[BegunAnew], kind="new_session", result=BegunAnew):
    """Leave the channel's conversation with its agent, and begin another."""

    channel: str


@dataclass(frozen=True)
class UseModel(Errand[None], kind="model"):
    """Use this model from the next turn on; None: the default. Whoever asks has checked it."""

    model: str | None = None


@dataclass(frozen=True)
class StopAgent(Errand[None], kind="stop_agent"):
    """Stop the channel's agent, if it has been idle for so long."""

    channel: str
    idle_seconds: float | None = None


def read_errand(kind: str, data: Json) -> Errand[Any]:
    """Return the errand that another daemon has written; raises ``BadInput`` for one that this one does not know."""
    if kind not in KINDS:
        raise BadInput(f"this daemon cannot {kind}; it is older than the one that asks")
    return KINDS[kind].from_json(data)


def raise_error(result: Json) -> None:
    """Raise the error, if that is what another daemon has written as the result of an errand."""
    error = result.get("error")
    if isinstance(error, Mapping):
        raise by_code(str(error.get("code")))(str(error.get("message")))


def _parse(cls: type[T], data: Json) -> T:
    """Return the dataclass with what its fields are called in the data; what else is there is ignored."""
    values: dict[str, object] = {}
    for one in fields(cast(Any, cls)):
        value, expected = data.get(one.name, one.default), cast(Any, one.type)
        if expected is How:
            value = How(str(value))
        if not isinstance(value, expected):
            raise BadInput(f"{one.name}: it is missing, or of another type")
        values[one.name] = value
    return cls(**values)
