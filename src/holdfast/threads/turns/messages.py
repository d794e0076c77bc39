"""Messages on their way to the agent: with their files, with what is spoken in these, and into a turn that is running.

The store takes a message into a running turn before the agent is told, so that a crash in between does not run it
twice. At the end of the turn the agent is asked which it has taken: what it certainly has not is sent once more, as a
message of its own. Where nobody can tell, that is reported. So nothing said is lost in silence or run twice.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import structlog

from holdfast.agents.base import Prompt
from holdfast.errors import (
    AgentFailed,
    BadInput,
    FileMissing,
    HoldfastError,
    IdempotencyMismatch,
    NotTranscribed,
)
from holdfast.records.threads import Lease, MessageRow, Mode, NewMessage, TurnRow
from holdfast.threads.files.files import ThreadFileService
from holdfast.threads.files.voice import is_audio, spoken, unheard
from holdfast.threads.names import MAX_MESSAGE_ID
from holdfast.threads.resolve.resolver import AttachedAgent
from holdfast.threads.tools import Tools
from holdfast.threads.turns.end import error_event
from holdfast.vocabulary.turn_events import Kind, TurnEvent

log = structlog.get_logger(__name__)

_AGAIN = "+again"


class Attachments:
    """Those of one turn, also of messages that steer it."""

    def __init__(self, tools: Tools, files: ThreadFileService, lease: Lease, turn_id: str) -> None:
        self._tools = tools
        self._files = files
        self._lease = lease
        self._turn_id = turn_id
        self._one_at_a_time = asyncio.Lock()
        self._heard: dict[str, str | NotTranscribed] = {}
        """By file: what is said in it, or why nobody knows."""

    async def listen(self, ids: Sequence[str]) -> None:
        """Write down what audio files say, before there is need of a sandbox; it takes a while, and can be given up."""
        for file_id in ids:
            with contextlib.suppress(FileMissing):  # who brings it into the sandbox reports that
                name, path = await self._files.on_host(self._lease.thread_id, file_id)
                async with self._one_at_a_time:
                    if is_audio(name) and file_id not in self._heard:
                        self._heard[file_id] = await self._words(name, path)

    async def bring(self, session_id: str, text: str, ids: Sequence[str]) -> tuple[str, list[str]]:
        """Put the files into the sandbox; return the text that the agent is to read, and their paths. Twice is fine."""
        await self.listen(ids)
        paths = await self._files.sync_in(session_id, self._lease.thread_id, ids)
        parts = [text]
        for file_id, path in zip(ids, paths, strict=True):
            heard = self._heard.get(file_id)
            if heard is not None:
                parts.append(spoken(path, heard) if isinstance(heard, str) else unheard(path, heard))
        return "\n\n".join(parts), paths

    async def _words(self, name: str, path: Path) -> str | NotTranscribed:
        row = await self._tools.write(self._tools.store.threads.get, self._lease.thread_id)
        try:
            return await self._tools.transcriber.transcribe(path, row.owner)
        except NotTranscribed as error:
            log.warning("turn.not_transcribed", turn_id=self._turn_id, file=name, why=error.message)
            await self._tell(error_event(error.code, f"{name} was not transcribed: {error.message}"))
            return error

    async def _tell(self, event: TurnEvent) -> None:
        """Tell it once, also where the turn is begun again by another daemon."""
        store = self._tools.store
        told = await self._tools.write(store.thread_events.of_turn, self._turn_id, kinds=[Kind.ERROR])
        if not any(one.data == event.data for one in told):
            await self._tools.write(store.turns.note, self._lease, self._turn_id, events=[event])


class Steering:
    """Those of one turn."""

    def __init__(self, tools: Tools, attachments: Attachments, turn: TurnRow) -> None:
        self._tools = tools
        self._attachments = attachments
        self._turn = turn
        self._waiting: dict[str, MessageRow] = {}
        self._taken: set[str] = set()
        self._tried: set[str] = set()
        """Those that the agent may have been told of, here or by a predecessor."""
        self._lock = asyncio.Lock()
        self._listening: set[asyncio.Timeout] = set()
        self._over = False

    async def recall(self) -> None:
        """Read those of a predecessor, who may have died before the agent was told. To tell it twice does nothing."""
        for message in await self._read_steered():
            self._waiting[message.id] = message
            self._tried.add(message.id)

    async def _read_steered(self) -> list[MessageRow]:
        """Read all messages that the store has taken into the turn since it began."""
        messages = await self._tools.write(self._tools.store.messages.of_turn, self._turn.id)
        began = self._turn.first_seq  # where the message stands that it began with, if that was one of these
        return [one for one in messages if one.mode == Mode.STEER and one.seq is not None and one.seq > began]

    def add(self, message: MessageRow) -> None:
        self._waiting[message.id] = message

    async def deliver(self, found: AttachedAgent) -> None:
        """Give them to the agent, in order. What it does not take now waits for a recovery, or the end of the turn."""
        heard = await self._heard()
        async with self._lock:
            for message in heard:
                if self._over or message.id not in self._waiting:
                    continue  # somebody else was quicker
                self._tried.add(message.id)
                try:
                    await self._hand_over(found, message)
                except HoldfastError as error:
                    log.warning("turn.steer.failed", turn_id=self._turn.id, code=error.code, error=error.message)
                    return
                self._waiting.pop(message.id, None)
                self._taken.add(message.id)

    async def _heard(self) -> Sequence[MessageRow]:
        """Return those that wait, when all that is spoken in them is written down. ``close`` ends this wait."""
        waiting = [] if self._over else list(self._waiting.values())
        try:
            async with asyncio.timeout(None) as listening:
                self._listening.add(listening)
                for message in waiting:
                    await self._attachments.listen(message.attachments)
        except TimeoutError:
            if not listening.expired():
                raise
            return []
        finally:
            self._listening.discard(listening)
        return waiting

    @contextlib.asynccontextmanager
    async def delivering(self, found: AttachedAgent) -> AsyncIterator[None]:
        """Give the agent, meanwhile, what waits now: nobody is held up by what is spoken in it."""
        work = asyncio.ensure_future(self.deliver(found)) if self._waiting else None
        try:
            yield
        finally:
            if work is not None:
                work.cancel()
                for trouble in await asyncio.gather(work, return_exceptions=True):
                    if isinstance(trouble, Exception):
                        log.warning("turn.steer.failed", turn_id=self._turn.id, error=str(trouble))

    async def _hand_over(self, found: AttachedAgent, message: MessageRow) -> None:
        text, paths = await self._attachments.bring(found.place.session_id, message.text, message.attachments)
        prompt = Prompt(self._prompt_id(message), text, paths, message.model)
        try:
            await found.agent.steer(found.place, found.conversation, prompt)
        except AgentFailed:
            if not await found.agent.accepted(found.place, found.conversation, prompt.id):
                raise

    def _prompt_id(self, message: MessageRow) -> str:
        return f"{self._turn.id}:{message.id}"

    async def close(self, found: AttachedAgent | None) -> Sequence[TurnEvent]:
        """Return, at the end of the turn, when the store takes no more, what is to be told of those not taken."""
        self._over = True
        for listening in self._listening:
            if not listening.expired():
                listening.reschedule(asyncio.get_running_loop().time())
        async with self._lock:
            told: list[TurnEvent] = []
            for message in await self._read_steered():
                if message.id not in self._taken:
                    told += await self._settle(found, message)
            return told

    async def _settle(self, found: AttachedAgent | None, message: MessageRow) -> Sequence[TurnEvent]:
        taken = await self._was_taken(found, message) if message.id in self._tried else False
        if taken is None:
            log.error("turn.steer.unknown", turn_id=self._turn.id, message_id=message.id)
            text = f"it is not known whether the agent has read message {message.id}; send it again if it has not"
            return [error_event("agent_failed", text)]
        return [] if taken else await self._send_again(message)

    async def _was_taken(self, found: AttachedAgent | None, message: MessageRow) -> bool | None:
        """Ask the agent. None where nobody can tell: also where the conversation that had the turn is gone."""
        turn = await self._tools.write(self._tools.store.turns.get, self._turn.id)
        if found is None or found.conversation != turn.agent_session_id:
            return None
        try:
            async with asyncio.timeout(self._tools.settings.abort_seconds):
                return await found.agent.accepted(found.place, found.conversation, self._prompt_id(message))
        except (HoldfastError, TimeoutError):
            return None

    async def _send_again(self, message: MessageRow) -> Sequence[TurnEvent]:
        name, author, channel = id_again(message.id), message.author, message.channel
        again = NewMessage(name, message.text, author, channel, message.attachments, message.model)
        log.info("turn.steer.again", turn_id=self._turn.id, message_id=message.id)
        try:
            await self._tools.write(self._tools.store.messages.put, self._turn.thread_id, again)
        except (IdempotencyMismatch, BadInput, FileMissing) as error:
            log.error("turn.steer.lost", turn_id=self._turn.id, message_id=message.id, error=error.message)
            text = f"the agent has not read message {message.id}, and it could not be sent again: {error.message}"
            return [error_event("agent_failed", f"{text}; send it once more, with another id")]
        return []


def id_again(message_id: str) -> str:
    """Return the same id each time, and no other message's: one that is too long is not just cut."""
    if len(message_id) + len(_AGAIN) <= MAX_MESSAGE_ID:
        return f"{message_id}{_AGAIN}"
    return f"{message_id[:100]}~{hashlib.sha256(message_id.encode()).hexdigest()[:32]}{_AGAIN}"
