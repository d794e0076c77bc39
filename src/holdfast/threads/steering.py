"""Messages on their way into a turn that is running.

The store takes a message into the turn before the agent is told, so that a crash in between does not run it twice. What
the agent has not taken by the end of the turn is sent once more, as a message of its own: nothing said is lost.
"""

import asyncio
from functools import partial

import structlog

from holdfast.agents.base import Prompt
from holdfast.errors import AgentFailed, BadInput, FileMissing, HoldfastError, IdempotencyMismatch
from holdfast.store.thread_rows import MessageRow, Mode, NewMessage, TurnRow
from holdfast.threads.files import ThreadFileService
from holdfast.threads.keys import MAX_MESSAGE_ID
from holdfast.threads.patience import patiently
from holdfast.threads.resolver import Attached
from holdfast.threads.tools import Tools

log = structlog.get_logger(__name__)

_AGAIN = "+again"


class Steering:
    """Those of one turn."""

    def __init__(self, tools: Tools, files: ThreadFileService, turn: TurnRow) -> None:
        self._tools = tools
        self._files = files
        self._turn = turn
        self._waiting: dict[str, MessageRow] = {}
        self._lock = asyncio.Lock()

    async def recall(self) -> None:
        """A predecessor may have died before its agent was told. Who was told already does nothing when told again."""
        messages = await patiently(lambda: self._tools.store.messages.of_turn(self._turn.id), self._tools.sleep)
        for message in messages:
            if message.mode == Mode.STEER and message.updated_at > self._turn.created_at:
                self._waiting[message.id] = message

    def add(self, message: MessageRow) -> None:
        self._waiting[message.id] = message

    async def deliver(self, found: Attached) -> None:
        """To the agent, in order. What it does not take now waits for a recovery, or for the end of the turn."""
        async with self._lock:
            for message in list(self._waiting.values()):
                try:
                    await self._hand_over(found, message)
                except HoldfastError as error:
                    log.warning("turn.steer.failed", turn_id=self._turn.id, code=error.code, error=error.message)
                    return
                self._waiting.pop(message.id, None)

    async def _hand_over(self, found: Attached, message: MessageRow) -> None:
        paths = await self._files.sync_in(found.place.session_id, self._turn.thread_id, message.attachments)
        prompt = Prompt(self._prompt_id(message), message.text, paths, message.model)
        try:
            await found.agent.steer(found.place, found.session, prompt)
        except AgentFailed:
            if not await found.agent.accepted(found.place, found.session, prompt.id):
                raise

    def _prompt_id(self, message: MessageRow) -> str:
        return f"{self._turn.id}:{message.id}"

    async def send_again(self) -> None:
        """At the end of the turn: what the agent never took."""
        for message in self._waiting.values():
            again = NewMessage(
                id=f"{message.id[: MAX_MESSAGE_ID - len(_AGAIN)]}{_AGAIN}",
                text=message.text,
                channel=message.channel,
                author=message.author,
                attachments=message.attachments,
                model=message.model,
            )
            log.info("turn.steer.again", turn_id=self._turn.id, message_id=message.id)
            try:
                await patiently(partial(self._tools.store.messages.put, self._turn.thread_id, again), self._tools.sleep)
            except (IdempotencyMismatch, BadInput, FileMissing) as error:
                log.error("turn.steer.lost", turn_id=self._turn.id, message_id=message.id, error=error.message)
        self._waiting.clear()
