"""The one vocabulary in which an agent's work is told, from the agent's adapter to the client's screen.

An event is a kind and a small JSON object. The same object is stored, sent over SSE and WebSocket, and handed out by
the SDK; nobody on the way translates it. ``KINDS`` says which fields a kind has; more may be there, and readers ignore
what they do not know.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    MESSAGE_CREATE = "message.create"
    TEXT_DELTA = "message.part.text-delta"
    TOOL_UPDATE = "message.part.tool-update"
    FINALIZE = "message.finalize"
    MESSAGE_CANCELED = "message.canceled"
    STATUS = "agent.status"
    QUESTION = "question"
    QUESTION_CLOSED = "question.closed"
    ERROR = "error"
    MODELS = "models"
    TITLE = "title"
    FILES_CHANGED = "files-changed"
    RESOLVED = "thread.resolved"
    SLEEP = "thread.sleep"
    REVERTED = "turn.reverted"
    NEW_SESSION = "session.new"
    MODEL_CHOSEN = "model-chosen"
    PLAN = "plan"
    COMMANDS = "commands"
    MODEL_SWITCHED = "model-switched"
    USAGE_ALERT = "usage-alert"
    TUNNELS = "tunnels"


class ToolState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    ERROR = "error"


class AgentStatus(StrEnum):
    IDLE = "idle"
    THINKING = "thinking"
    TOOL_CALLING = "tool_calling"
    STREAMING = "streaming"
    ERROR = "error"


class StopReason(StrEnum):
    """How a turn ended; every turn ends in one of these, and says so exactly once."""

    END_TURN = "end_turn"
    ERROR = "error"
    CANCELED = "canceled"


@dataclass(frozen=True)
class TurnEvent:
    """One thing that happened. ``data`` holds what ``KINDS`` names for its kind."""

    kind: Kind
    data: Mapping[str, object]


KINDS: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.MESSAGE_CREATE: ("message_id", "role"),
    Kind.TEXT_DELTA: ("message_id", "part_id", "text"),
    Kind.TOOL_UPDATE: ("message_id", "tool_id", "name", "state"),
    Kind.FINALIZE: ("message_id", "reason"),
    Kind.MESSAGE_CANCELED: ("message_id",),
    Kind.STATUS: ("status",),
    Kind.QUESTION: ("question_id", "text"),
    Kind.QUESTION_CLOSED: ("question_id", "answer"),
    Kind.ERROR: ("code", "message"),
    Kind.MODELS: ("models",),
    Kind.TITLE: ("title",),
    Kind.FILES_CHANGED: ("paths",),
    Kind.RESOLVED: ("how", "session_id"),
    Kind.SLEEP: ("sleep_state",),
    Kind.REVERTED: ("turn_ids",),
    Kind.NEW_SESSION: (),
    Kind.MODEL_CHOSEN: ("model",),
    Kind.PLAN: ("entries",),
    Kind.COMMANDS: ("commands",),
    Kind.MODEL_SWITCHED: ("from", "to", "reason"),
    Kind.USAGE_ALERT: ("what", "message"),
    Kind.TUNNELS: ("session_id", "tunnels"),
}
"""The fields that are always there. Others that have a meaning:

=========================  ===========================================================================================
message.create             ``text`` and ``author`` of a user's message
message.part.text-delta    ``thought``: true where it is the agent's thinking and not its answer
message.part.tool-update   ``input`` (object), ``output`` (text so far, cut), ``title``, ``exit_code``
message.finalize           ``error``: {code, message} where the reason is ``error``; ``artifacts``; ``usage``:
                           {calls, input_tokens, output_tokens, cached_tokens, cost_usd}
question                   ``options``: [{id, label}]; ``deadline``: seconds since the epoch; ``default``
error                      ``discards``: ids of parts whose text is no part of the answer any more: the model is asked
                           again (``model_retried``), and what it says then has other ids
models                     ids of those that the conversation can use; ``current``: the one that this turn uses. Told in
                           its first turn, and when either has changed
plan                       ``entries``: [{text, status: pending|in_progress|completed}], the whole plan each time
commands                   ``commands``: [{name, description}]
model-switched             ``from`` and ``to`` are ids of models; ``reason`` in words
usage-alert                ``what``: budget, rate, refused, …
session.new                the agent of this channel knows nothing of what was said before, from now on
model-chosen               ``model`` is the id that the thread uses from the next turn on; null: the daemon's default
thread.resolved            ``why``, in words; told by the host where more was needed than to use what was there
thread.sleep               ``sleep_state`` of the thread's sandbox from now on: awake, paused, hibernated, or none
tunnels                    [{name, port, host}]: all names of ports that the sandbox ``session_id`` has from now on
=========================  ===========================================================================================
"""


def characters(value: object) -> int:
    """Return how much text there is in what an event tells."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(characters, value.values()))
    return sum(map(characters, value)) if isinstance(value, list | tuple) else 0


def check(event: TurnEvent) -> TurnEvent:
    """Return the event; raises ``ValueError`` if a field of its kind is missing."""
    missing = [name for name in KINDS[event.kind] if name not in event.data]
    if missing:
        raise ValueError(f"{event.kind.value} without {', '.join(missing)}")
    return event
