"""What one call takes: of the room for questions, while its own is read, and of its budgets."""

import asyncio

from aiohttp import web

from holdfast.broker.models.intake.pace import Pace
from holdfast.broker.models.intake.question import BadQuestion, Question
from holdfast.broker.models.intake.room import Room
from holdfast.broker.models.intake.weight import PART_BYTES, TooHeavy, parts_of
from holdfast.broker.models.ledger import Ledger
from holdfast.broker.models.limits.holds import Hold
from holdfast.broker.models.providers.endpoints import Endpoint, Operation

MOST_BYTES = 32 << 20
"""Of a question."""
BODY_SECONDS = 60.0
_BIG_BYTES = 256 << 10
"""More is looked through in a thread."""


class Taken:
    """What one call has taken: of the room, and of its budgets."""

    def __init__(self, room: Room, pace: Pace, ledger: Ledger, session_id: str) -> None:
        self.room = room
        self._pace = pace
        self._ledger = ledger
        self.hold: Hold | None = None
        self._session_id = session_id
        self._size = 0

    def take(self, size: int) -> None:
        self.room.take(self._session_id, size)
        self._size += size

    def wait(self, weight: int) -> float:
        return self._pace.wait(self._session_id, weight)

    def give_back(self) -> None:
        self.room.give_back(self._session_id, self._size)
        if self.hold is not None:
            self._ledger.release(self.hold)


async def read_question(request: web.BaseRequest, endpoint: Endpoint, taken: Taken) -> Question | None:
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
    inner = await _parts(bytes(body), taken) * PART_BYTES
    taken.take(inner)
    await asyncio.sleep(taken.wait(len(body) + inner))
    return Question(endpoint, bytes(body))


async def _parts(body: bytes, taken: Taken) -> int:
    try:
        if len(body) <= _BIG_BYTES:
            return parts_of(body)
        async with taken.room.one_by_one:
            return await asyncio.to_thread(parts_of, body)
    except TooHeavy as error:
        raise BadQuestion(str(error)) from None
