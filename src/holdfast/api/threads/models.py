"""Threads as they look on the wire: messages, turns, events and files."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, StrictBool
from pydantic_core import to_json

from holdfast.api.threads.option_models import OptionsIn, OptionsOut
from holdfast.api.threads.usage_models import UsageOut
from holdfast.api.wire.models import From, Output, Request
from holdfast.api.wire.patterns import GIVEN_ID, MESSAGE_ID, THREAD_KEY
from holdfast.api.wire.sse import ServerEvent
from holdfast.api.wire.text import Name, Text, Timestamp
from holdfast.records.threads import (
    ChannelRow,
    MessageRow,
    MessageStatus,
    Mode,
    NewMessage,
    SleepState,
    ThreadEventRow,
    ThreadFileRow,
    TranscriptLine,
    TurnState,
)
from holdfast.threads.names import DEFAULT_CHANNEL, MAX_CHANNEL, MAX_MESSAGE_ID
from holdfast.threads.service import MAX_TEXT
from holdfast.threads.types import How, Resolved, ThreadView, TurnView
from holdfast.vocabulary.turn_events import StopReason

IN_STREAM = "thread"
"""One name for all events in a stream: ``error`` is what a stream that breaks off ends with."""
MAX_ATTACHMENTS = 100

Channel = Annotated[str, Field(pattern=THREAD_KEY, max_length=MAX_CHANNEL)]
FileId = Annotated[str, Field(pattern=GIVEN_ID)]
TurnId = Annotated[str, Field(pattern=GIVEN_ID)]
MessageId = Annotated[
    str,
    Field(
        pattern=MESSAGE_ID,
        max_length=MAX_MESSAGE_ID,
        description="Chosen by you, and its name for ever: printable ASCII without spaces and slashes",
    ),
]


# -- requests ------------------------------------------------------------------------------------------------------


class ResolveIn(Request):
    channel: Channel = DEFAULT_CHANNEL
    options: OptionsIn | None = None


class MessageIn(Request):
    id: MessageId
    text: Annotated[Text, Field(max_length=MAX_TEXT)]
    attachments: Annotated[list[FileId], Field(max_length=MAX_ATTACHMENTS, description="Ids of uploaded files")] = []  # noqa: RUF012 - pydantic gives each its own
    author: Name | None = None
    channel: Channel = DEFAULT_CHANNEL
    model: Name | None = None
    mode: Mode = Field(default=Mode.QUEUE, description="What it means while a turn is running")
    options: OptionsIn | None = None

    def message(self) -> NewMessage:
        return NewMessage(
            id=self.id,
            text=self.text,
            author=self.author,
            channel=self.channel,
            attachments=self.attachments,
            model=self.model,
            mode=self.mode,
        )


class AbortIn(Request):
    channel: Channel = DEFAULT_CHANNEL
    queued: StrictBool = Field(default=False, description="Cancel also the messages that wait")
    turn_id: TurnId | None = Field(default=None, description="Only this one, whatever its channel")


class AnswerIn(Request):
    answer: Annotated[Text, Field(max_length=MAX_TEXT, description="The id of an option, or any text")]


class RevertIn(Request):
    turn_id: TurnId | None = Field(default=None, description="Take back this one and all after it; else the last")
    channel: Channel = DEFAULT_CHANNEL


class PauseIn(Request):
    hibernate: StrictBool = Field(default=False, description="Stop it, and keep its files only")


# -- replies -------------------------------------------------------------------------------------------------------


class ChannelOut(Output, record=ChannelRow):
    channel: str
    agent_session_id: str | None
    status: Annotated[str, From("agent_status")] = Field(description="idle, thinking, tool_calling, streaming or error")
    title: str | None


class ThreadOut(Output, record=ThreadView, inner="row"):
    id: str
    key: str
    owner: str
    platform: str
    agent: str
    session_id: str | None = Field(description="Its sandbox, for as long as there is one")
    sleep_state: SleepState = Field(description="none: no sandbox now; the next message brings one")
    channels: list[ChannelOut]
    options: OptionsOut
    preview_url: str | None
    preview_token: str | None = Field(description="Lets a browser in there, as ?token=; only of one thread, scope use")
    preview_expires_at: Timestamp | None = Field(description="Of the token; there is a new one before that")
    resume_failures: int
    last_error: str | None
    last_seq: int = Field(description="The number of its newest event")
    created_at: Timestamp
    last_activity_at: Timestamp
    usage: UsageOut | None = Field(description="Its calls to models, in all; null where a resolve found all there")
    channel: str | None = Field(description="In which something happened last")
    resumed_at: Timestamp | None = Field(description="When its sandbox or agent was last woken, or brought back")
    destroyed_at: Timestamp | None = Field(description="When it last lost a sandbox")
    healthy_at: Timestamp | None = Field(description="When sandbox and agent were last seen to answer")


class ThreadPage(BaseModel):
    threads: list[ThreadOut]
    next_cursor: str | None


class _Resolved(Output, record=Resolved):
    thread: ThreadOut
    session_id: str
    agent_session_id: str
    how: How
    why: str | None = Field(description="What was found, in words")


class ResolvedOut(_Resolved):
    urls: dict[str, str] = Field(
        description="Addresses of its sandbox by name; to come in takes a link, a key or a token"
    )


class MessageOut(Output, record=MessageRow):
    id: str
    channel: str
    author: str | None
    text: str
    attachments: list[str]
    model: str | None
    mode: Mode
    status: MessageStatus
    turn_id: str | None = Field(description="null until it is in a turn")
    after: int | None = Field(description="All events of it have greater numbers; null where that is not known")
    at: Timestamp


class MessagePage(BaseModel):
    messages: list[MessageOut]
    next_cursor: str | None


class FileOut(Output, record=ThreadFileRow):
    id: str
    name: str
    size: int
    sha256: str
    turn_id: str | None = Field(description="The turn that made it; null for what was uploaded")
    created_at: Timestamp


class FileList(BaseModel):
    files: list[FileOut]


class TurnError(BaseModel):
    code: str
    message: str


def _error_out(error: Mapping[str, object]) -> TurnError:
    return TurnError.model_construct(code=str(error.get("code")), message=str(error.get("message")))


class TurnOut(Output, record=TurnView, inner="row"):
    id: str
    channel: str
    state: TurnState
    prompt: str
    accepted: bool = Field(description="Whether the agent is known to have taken up the prompt")
    attempts: int
    reason: Annotated[StopReason | None, From("stop_reason")] = Field(description="How it ended")
    error: Annotated[TurnError | None, From(by=_error_out)]
    artifacts: list[FileOut]
    answer: str | None = Field(description="What the agent said, when it has ended")
    reverted: bool
    created_at: Timestamp
    started_at: Timestamp | None
    ended_at: Timestamp | None
    usage: UsageOut = Field(description="Its calls to models so far")


class SentOut(BaseModel):
    """A message that was sent. ``turn`` is null until the message is in one."""

    message: MessageOut
    turn: TurnOut | None


class AbortedOut(BaseModel):
    turn: TurnOut | None = Field(description="What is being ended; null if nothing was running")


class LineOut(Output, record=TranscriptLine):
    role: str = Field(description="user or agent")
    text: str
    channel: str
    turn_id: str
    author: str | None
    at: Timestamp


class TranscriptOut(BaseModel):
    lines: list[LineOut]


class ThreadEventOut(Output, record=ThreadEventRow):
    """One event of a thread. ``kind`` says which fields ``data`` has."""

    seq: int
    kind: str
    turn_id: str | None
    channel: str | None
    at: Timestamp
    data: dict[str, Any]


class ThreadEventList(BaseModel):
    """``next`` is the ``after`` of the next request. Events up to ``pruned`` were forgotten: there were too many."""

    events: list[ThreadEventOut]
    next: int
    newest: int
    pruned: int = 0


def in_stream(view: ThreadEventRow) -> ServerEvent:
    """Return the event as it is sent. Its id is its number: where a client that was cut off goes on."""
    return ServerEvent(IN_STREAM, to_json(ThreadEventOut.fields_of(view)), str(view.seq))
