"""Commands on a thread as they look on the wire: diffs, reviews, slash commands, models."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from holdfast.agents.base import SlashCommand
from holdfast.api.threads.models import Channel, MessageId, TurnId
from holdfast.api.wire.models import From, Output, Request
from holdfast.api.wire.patterns import COMMAND_NAME
from holdfast.api.wire.text import Name, Text
from holdfast.records.threads import NewMessage
from holdfast.threads.commands.commands import ModelChoice, ModelChoices
from holdfast.threads.commands.git_diff import Diff
from holdfast.threads.names import DEFAULT_CHANNEL
from holdfast.threads.service import MAX_TEXT
from holdfast.threads.types import AgentCommands

DEMO = "demo"
"""The provider that is no model: see docs/agents.md."""


class _Asking(Request):
    """What makes a turn: a message."""

    id: MessageId
    author: Name | None = None
    channel: Channel = DEFAULT_CHANNEL
    model: Name | None = None

    def _message(self, text: str) -> NewMessage:
        return NewMessage(id=self.id, text=text, author=self.author, channel=self.channel, model=self.model)


class CommandIn(_Asking):
    name: Annotated[str, Field(pattern=COMMAND_NAME, max_length=200, description="With or without the slash")]
    arguments: Annotated[Text, Field(max_length=MAX_TEXT)] = ""

    def message(self) -> NewMessage:
        return self._message(self.arguments)


class ReviewIn(_Asking):
    text: Annotated[Text, Field(max_length=10_000, description="What to look at in particular")] = ""

    def message(self) -> NewMessage:
        return self._message(self.text)


class NewSessionIn(Request):
    channel: Channel = DEFAULT_CHANNEL


class DiffIn(Request):
    turn_id: TurnId | None = None
    channel: Channel = DEFAULT_CHANNEL


class ModelIn(Request):
    model: Name | None = Field(description="An id as GET …/models has it; null: the default")


class DiffOut(Output, record=Diff):
    diff: Annotated[str, From("text")] = Field(description="Unified; empty if nothing has changed")
    source: str = Field(description="agent: what the turn has changed; git: what differs from the last commit")
    truncated: bool


class CommandOut(Output, record=SlashCommand):
    name: str
    description: str


class CommandsOut(Output, record=AgentCommands):
    agent: str
    commands: list[CommandOut]


class NewSessionOut(BaseModel):
    seq: int = Field(description="The number of its event: what came before, the agent does not know")


class ModelOut(BaseModel):
    id: str = Field(description="provider/name")
    provider: str | None = Field(description="null: a model of the agent's own, which the broker does not serve")
    name: str
    context_tokens: int | None
    output_tokens: int | None
    demo: bool = Field(description="The bundled stand-in, which is no model: it does what each line of a prompt says")


def _models(offers: Sequence[ModelChoice]) -> list[ModelOut]:
    return [
        ModelOut.model_construct(
            id=one.id,
            provider=one.model and one.model.provider,
            name=one.model.name if one.model else one.id,
            context_tokens=one.model and one.model.context_tokens,
            output_tokens=one.model and one.model.output_tokens,
            demo=one.model is not None and one.model.provider == DEMO,
        )
        for one in offers
    ]


class ModelsOut(Output, record=ModelChoices):
    agent: str
    models: Annotated[list[ModelOut], From(by=_models)]
    current: str | None = Field(description="What is asked where a message names none; null: the agent decides")
