"""Speech recognition with faster-whisper, in a process of its own for each file.

So it can be ended when it takes too long, what it needs of memory is gone afterwards, and whatever a strange file does
to the decoder is not done to the daemon, whose keys that process does not have (``whisper_child``).
"""

import asyncio
import contextlib
import importlib.util
import os
import sys
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from holdfast.errors import NotTranscribed
from holdfast.threads.files.voice import MOST_TEXT

ENGINE: Final = "faster_whisper"
SECONDS: Final = 900.0
"""For one file; and for waiting until it is its turn."""
_AT_ONCE = 2
"""Of different owners, so that one who sends what takes long leaves a place for the others."""
_WAITING = 32
"""Files of one owner."""
_CHILD = Path(__file__).with_name("whisper_child.py")
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
_MOST_WORDS = 300
_READ_BYTES = 64 << 10
_MOST_BYTES = 4 * MOST_TEXT


async def _beginning(stream: asyncio.StreamReader) -> bytes:
    """Read the beginning of what it says; the rest is dropped. Decoders of strange files may say anything, for ever."""
    kept = bytearray()
    while chunk := await stream.read(_READ_BYTES):
        kept += chunk[: _MOST_BYTES - len(kept)]
    return bytes(kept)


async def _end(stream: asyncio.StreamReader) -> bytes:
    """Read the last of what it says: there is why it failed."""
    kept = b""
    while chunk := await stream.read(_READ_BYTES):
        kept = (kept + chunk)[-_READ_BYTES:]
    return kept


class Whisper:
    """A ``Transcriber``. ``model`` is a directory with a model as CTranslate2 wants it; nothing is ever downloaded."""

    def __init__(self, model: Path, *, seconds: float = SECONDS) -> None:
        self._model = model
        self._seconds = seconds
        self._queue = FairQueue(_AT_ONCE, _WAITING)

    async def transcribe(self, path: Path, owner: str, /) -> str:
        if importlib.util.find_spec(ENGINE) is None:
            raise NotTranscribed("transcription_model is set, but its engine is missing: install holdfast[audio]")
        if not (self._model / "model.bin").is_file():
            raise NotTranscribed(f"transcription_model: there is no Whisper model (model.bin) in {self._model}")
        try:
            async with self._queue.turn(owner, seconds=self._seconds):
                return await self._in_time(path)
        except QueueFull:
            raise NotTranscribed(f"{_WAITING} audio files of this owner are waiting already; send it later") from None
        except TimeoutError:
            waited = f"other files came first, for {self._seconds:g} s; send it again"
            raise NotTranscribed(waited) from None

    async def _in_time(self, path: Path) -> str:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._run(path)
        except TimeoutError:
            raise NotTranscribed(f"it took longer than {self._seconds:g} s") from None

    async def _run(self, path: Path) -> str:
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", str(_CHILD), str(self._model), str(path)),
            env={**environment, "HF_HUB_OFFLINE": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None and process.stderr is not None
        try:
            out, err = await asyncio.gather(_beginning(process.stdout), _end(process.stderr))
            await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode:
            lines = err.decode("utf-8", "replace").strip().splitlines()
            said = lines[-1] if lines else f"it ended with {process.returncode}"
            said = said.replace(str(path), "the file")[:_MOST_WORDS]  # where it is on the host is nobody's business
            raise NotTranscribed(f"speech recognition failed: {said}")
        return out.decode("utf-8", "replace")


class QueueFull(Exception):
    """So many of one owner wait already."""


class FairQueue:
    """Owners take turns, however many each of them has waiting: ``places`` at a time, each of another owner; at most
    ``waiting`` of one owner wait."""

    def __init__(self, places: int, waiting: int) -> None:
        self._places = places
        self._most_waiting = waiting
        self._busy: set[str] = set()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """By owner; whose turn is next stands first."""

    @contextlib.asynccontextmanager
    async def turn(self, owner: str, *, seconds: float) -> AsyncIterator[None]:
        """Wait for a place. Raises ``QueueFull`` where too many of this owner wait, and TimeoutError."""
        await self._come(owner, seconds)
        try:
            yield
        finally:
            self._busy.discard(owner)
            if owner in self._waiting:
                self._waiting.move_to_end(owner)
            self._next()

    async def _come(self, owner: str, seconds: float) -> None:
        queue = self._waiting.setdefault(owner, deque())
        if len(queue) >= self._most_waiting:
            raise QueueFull
        place = asyncio.get_running_loop().create_future()
        queue.append(place)
        self._next()
        try:
            async with asyncio.timeout(seconds):
                await place
        except BaseException:
            self._leave(owner, place)
            raise

    def _leave(self, owner: str, place: "asyncio.Future[None]") -> None:
        """Give up a place in the queue; who goes may have been called in the same moment."""
        queue = self._waiting.get(owner, deque())
        if place in queue:
            queue.remove(place)
        elif place.done() and not place.cancelled():
            self._busy.discard(owner)
        self._next()

    def _next(self) -> None:
        for owner in list(self._waiting):
            queue = self._waiting[owner]
            while queue and queue[0].done():
                queue.popleft()
            if not queue:
                del self._waiting[owner]
            elif owner not in self._busy and len(self._busy) < self._places:
                self._busy.add(owner)
                queue.popleft().set_result(None)
