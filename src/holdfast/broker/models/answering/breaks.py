"""Reports answers that broke off after they had begun, and what the agent did then, to the reader of its output.

Some agents say nothing of it. They ask again, and what they then say comes behind the half; or they end the turn as
if the half were the whole. So a word is left among what the agent says, by the runner: ``BROKE`` before the agent
hears of it, and when it asks the next question ``CUT`` if that is the same one again, for a stream from the
start, and ``WENT_ON`` if it is another.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from holdfast.broker.accounts import Account
from holdfast.broker.dialects.json import written
from holdfast.broker.models.intake.question import Question
from holdfast.concurrency import Bounded
from holdfast.errors import HoldfastError
from holdfast.protocol.messages import BROKE, CUT, WENT_ON
from holdfast.vocabulary.models import channel_tag

log = structlog.get_logger(__name__)

Tell = Callable[[str, str, bytes], Awaitable[None]]
"""Leave a word, in this session, among what the agent of the channel with this tag says."""

_TELL_SECONDS = 5.0
"""The agent waits meanwhile; an answer without the word is better than none."""
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class _Break:
    turn_id: str | None
    asked: bytes


class Breaks:
    """Remembers the last broken answer of each channel, until its agent asks for something else."""

    def __init__(self) -> None:
        self._tell: Tell | None = None
        self._last = Bounded[tuple[str, str], _Break](_MOST)

    def attend(self, tell: Tell) -> None:
        """Set the function that reports to the runner, once there are sessions."""
        self._tell = tell

    async def note_break(self, session_id: str, account: Account, question: Question | None) -> None:
        """Report a broken answer, before the agent learns of it."""
        if question is None or not question.is_with_tools:
            return
        self._last[session_id, account.channel] = _Break(account.turn_id, await _digest(question))
        await self._leave(session_id, account, BROKE)

    async def note_question(self, session_id: str, account: Account, question: Question | None) -> None:
        """Report what the agent asks after a broken answer, before it is answered. It has printed all of it."""
        if not self._last or question is None or not question.is_with_tools:
            return
        last = self._last.pop((session_id, account.channel), None)
        if last is not None and last.turn_id == account.turn_id:
            # Claude Code asks again for an answer in one piece, and tells only what the half had not: that one stays.
            is_anew = question.streamed and last.asked == await _digest(question)
            await self._leave(session_id, account, CUT if is_anew else WENT_ON)

    async def _leave(self, session_id: str, account: Account, word: bytes) -> None:
        if self._tell is None:
            return
        try:
            async with asyncio.timeout(_TELL_SECONDS):
                await self._tell(session_id, channel_tag(account.channel), word)
        except (HoldfastError, TimeoutError) as error:  # a runner of before an upgrade knows no such words
            log.info("models.break_not_told", session_id=session_id, why=str(error))


async def _digest(question: Question) -> bytes:
    return await asyncio.to_thread(_hashed, question) if question.is_big else _hashed(question)


def _hashed(question: Question) -> bytes:
    digest = hashlib.sha256()
    for piece in question.lifted.pieces(written(question.conversation)):
        digest.update(piece)
    return digest.digest()
