"""Reads the question of one call, and reserves the memory for it."""

import asyncio
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from holdfast.broker.accounts import Hold
from holdfast.broker.models.intake.lifted import Lifted, NotPlain, lift
from holdfast.broker.models.intake.question import BadQuestion, Question
from holdfast.broker.models.intake.room import QuestionMemory
from holdfast.broker.models.intake.weight import BIG_BYTES, PART_BYTES, TooHeavy, is_big, parts_of
from holdfast.broker.models.ledger import Ledger
from holdfast.broker.models.providers.endpoints import Endpoint, Operation

MOST_BYTES = 32 << 20
"""Of a question."""
BODY_SECONDS = 60.0


class Reservation:
    """The memory and the money that one call has reserved."""

    def __init__(self, room: QuestionMemory, ledger: Ledger, session_id: str) -> None:
        self.room = room
        self._ledger = ledger
        self.hold: Hold | None = None
        self._session_id = session_id
        self._size = 0

    def take(self, size: int) -> None:
        self.room.take(self._session_id, size)
        self._size += size

    def wait(self, weight: int) -> float:
        return self.room.pace.wait(self._session_id, weight)

    def give_back(self) -> None:
        self.room.give_back(self._session_id, self._size)
        if self.hold is not None:
            self._ledger.release(self.hold)


async def read_question(request: web.BaseRequest, endpoint: Endpoint, taken: Reservation) -> Question | None:
    if endpoint.operation is Operation.LIST:
        return None
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise BadQuestion("compressed requests are not taken here; send it as it is")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.content.iter_any():
                taken.take(len(chunk))
                body += chunk
                if len(body) > MOST_BYTES:
                    raise BadQuestion(f"the request has more than {MOST_BYTES >> 20} MB")
    except TimeoutError:
        raise BadQuestion(f"the request was not complete within {BODY_SECONDS:.0f} s") from None
    found = await _looked_through(body, taken)
    inner = found.parts * PART_BYTES
    taken.take(inner)
    await asyncio.sleep(taken.wait(len(body) + inner))
    understand = partial(Question, endpoint, found.text, found.lifted, size=len(body), is_big=found.is_big)
    if not found.is_big:
        return understand()
    async with taken.room.one_by_one:
        return await asyncio.to_thread(understand)


@dataclass(frozen=True, slots=True)
class _Found:
    """The content of a body, before it is parsed."""

    text: bytes
    lifted: Lifted
    parts: int

    @property
    def is_big(self) -> bool:
        return is_big(self.text, self.parts)


async def _looked_through(body: bytearray, taken: Reservation) -> _Found:
    try:
        if len(body) <= BIG_BYTES:
            return _Found(bytes(body), Lifted(), parts_of(bytes(body)))
        async with taken.room.one_by_one:
            return await asyncio.to_thread(_look_through, body)
    except TooHeavy as error:
        raise BadQuestion(str(error)) from None
    except NotPlain as error:
        raise BadQuestion(f"the request's body is no JSON: {error}") from None


def _look_through(body: bytearray) -> _Found:
    text, lifted = lift(body)
    return _Found(text, lifted, parts_of(text))
