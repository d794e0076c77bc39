"""Makes the request for one candidate: as the question came, or translated into the candidate's dialect."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.broker.dialects import DIALECTS
from holdfast.broker.dialects.json import written
from holdfast.broker.dialects.lacks import CannotCarry, Target
from holdfast.broker.dialects.question import CommonQuestion, Role, has_images
from holdfast.broker.models.answering.translation import Translation
from holdfast.broker.models.asking.candidates import Candidate
from holdfast.broker.models.intake.lifted import Lifted
from holdfast.broker.models.intake.question import Question
from holdfast.broker.models.providers import endpoints
from holdfast.broker.models.providers.catalogue import ProviderKind
from holdfast.broker.models.providers.endpoints import Endpoint
from holdfast.vocabulary.models import Wire

_EVENTS = ("alt", "sse")
"""How Gemini is asked for a stream of events, and not for one list."""


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request of a program in a sandbox, before any provider was contacted."""

    endpoint: Endpoint
    method: str
    question: Question | None
    headers: Mapping[str, str]
    query: Sequence[tuple[str, str]]
    holds: bool = False
    """Whether to wait for the first words of a stream, so that it can be asked again if it breaks before."""

    @property
    def streamed(self) -> bool:
        return self.question is not None and self.question.streamed


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """The request to one candidate."""

    ask: ClientRequest
    candidate: Candidate
    wire: Wire
    """In which the candidate is asked, and answers."""
    path: str
    query: Sequence[tuple[str, str]]
    headers: Mapping[str, str]
    """Without the key."""
    body: bytes | None
    """With marks for what was lifted out of the question."""
    hides_bill: bool = False
    """The usage is asked for by the proxy only: the agent does not expect it."""
    streamed: bool = False
    translation: Translation | None = None
    """None where the candidate speaks as the agent does: its answer is passed on as it is."""

    @property
    def lifted(self) -> Lifted:
        return self.ask.question.lifted if self.ask.question is not None else Lifted()


class RequestPlans:
    """The plans for one question. Each candidate's is made when it is needed, and once."""

    def __init__(self, ask: ClientRequest, asked: Candidate) -> None:
        self._ask = ask
        self._asked = asked
        self._made: dict[str, RequestPlan | CannotCarry] = {}

    async def to(self, candidate: Candidate) -> RequestPlan:
        """Raises ``CannotCarry``: this candidate cannot be asked the same."""
        made = await self._find(candidate)
        if isinstance(made, CannotCarry):
            raise made
        return made

    async def can(self, candidate: Candidate) -> bool:
        return isinstance(await self._find(candidate), RequestPlan)

    async def _find(self, candidate: Candidate) -> RequestPlan | CannotCarry:
        key = candidate.model.id
        if key not in self._made:
            try:
                self._made[key] = await self._new(candidate)
            except CannotCarry as why:
                self._made[key] = why
        return self._made[key]

    async def _new(self, candidate: Candidate) -> RequestPlan:
        question = self._ask.question
        if question is not None and question.is_big:
            return await asyncio.to_thread(self._make, candidate)
        return self._make(candidate)

    def _make(self, candidate: Candidate) -> RequestPlan:
        question = self._ask.question
        is_blind = not candidate.model.images and candidate.model.id != self._asked.model.id
        if question is not None and is_blind and has_images(question.talk(streamed=False)):
            raise CannotCarry("images, which it does not see")
        if not candidate.others or question is None:
            return _as_it_is(self._ask, candidate)
        return _translated(self._ask, candidate, question)


def _as_it_is(ask: ClientRequest, candidate: Candidate) -> RequestPlan:
    question, model = ask.question, candidate.model.name
    with_usage = candidate.provider.asks_for_usage
    body = question.put_to(model, with_usage=with_usage) if question is not None else None
    hides = question is not None and question.must_ask_for_usage() and with_usage
    path = ask.endpoint.path_at(candidate.provider, model)
    return RequestPlan(ask, candidate, ask.endpoint.wire, path, ask.query, ask.headers, body, hides, ask.streamed)


def _translated(ask: ClientRequest, candidate: Candidate, question: Question) -> RequestPlan:
    wants_events = ask.endpoint.wire is not Wire.GEMINI or _EVENTS in ask.query
    streamed = ask.streamed and wants_events
    talk = question.talk(streamed=streamed)
    _check(talk)
    provider, model = candidate.provider, candidate.model
    target = Target(
        model.name, model.output_tokens, provider.asks_for_usage, provider.kind is ProviderKind.OPENAI, model.images
    )
    wire, body = _written(talk, target, candidate.others)
    endpoint = endpoints.answering(wire, model.name, streamed=streamed)
    query = [_EVENTS] if endpoint.streams_by_path() else []
    headers = {"content-type": "application/json", "accept": "text/event-stream" if streamed else "application/json"}
    translation = Translation(ask.endpoint.wire, model.name, talk.usage_wanted, ask.streamed and not wants_events)
    path = endpoint.path_at(provider, model.name)
    return RequestPlan(ask, candidate, wire, path, query, headers, body, streamed=streamed, translation=translation)


def _check(talk: CommonQuestion) -> None:
    if talk.lacks:
        raise CannotCarry(", ".join(talk.lacks))
    if talk.messages and talk.messages[-1].role is Role.MODEL:
        raise CannotCarry("an answer that was begun for the model, to be gone on with")


def _written(talk: CommonQuestion, target: Target, wires: Sequence[Wire]) -> tuple[Wire, bytes]:
    """Write the question in the first of these dialects that can carry all of it."""
    missing: CannotCarry | None = None
    for wire in wires:
        try:
            return wire, written(DIALECTS[wire].write_question(talk, target))
        except CannotCarry as why:
            missing = missing or why
    raise missing or CannotCarry("anything")
