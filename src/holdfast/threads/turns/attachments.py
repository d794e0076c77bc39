"""What comes with a message, on its way to the agent: the files into the sandbox, and spoken words into the prompt."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import structlog

from holdfast.errors import FileMissing, NotTranscribed
from holdfast.records.threads import Lease
from holdfast.threads.files.files import ThreadFileService
from holdfast.threads.files.voice import is_audio, spoken, unheard
from holdfast.threads.tools import Tools, retry_write
from holdfast.threads.turns.end import error_event
from holdfast.vocabulary.turn_events import Kind, TurnEvent

log = structlog.get_logger(__name__)


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
        """The text that the agent is to read, and the paths of the files in the sandbox. Twice is fine."""
        await self.listen(ids)
        paths = await self._files.sync_in(session_id, self._lease.thread_id, ids)
        parts = [text]
        for file_id, path in zip(ids, paths, strict=True):
            heard = self._heard.get(file_id)
            if heard is not None:
                parts.append(spoken(path, heard) if isinstance(heard, str) else unheard(path, heard))
        return "\n\n".join(parts), paths

    async def _words(self, name: str, path: Path) -> str | NotTranscribed:
        row = await retry_write(lambda: self._tools.store.threads.get(self._lease.thread_id), self._tools.sleep)
        try:
            return await self._tools.transcriber.transcribe(path, row.owner)
        except NotTranscribed as error:
            log.warning("turn.not_transcribed", turn_id=self._turn_id, file=name, why=error.message)
            await self._tell(error_event(error.code, f"{name} was not transcribed: {error.message}"))
            return error

    async def _tell(self, event: TurnEvent) -> None:
        """Once, also where the turn is begun again by another daemon."""
        store, sleep = self._tools.store, self._tools.sleep
        told = await retry_write(lambda: store.thread_events.of_turn(self._turn_id, kinds=[Kind.ERROR]), sleep)
        if not any(one.data == event.data for one in told):
            await retry_write(lambda: store.turns.note(self._lease, self._turn_id, events=[event]), sleep)
