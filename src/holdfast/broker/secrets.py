"""A provider's key: from the environment, a file, or a command. It may change while the daemon runs.

Keys live in these objects and in the requests that are sent to providers, and nowhere else: not in the log, not in any
``repr``, not in a sandbox.
"""

import asyncio
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

COMMAND_SECONDS = 30.0
"""How long a command may take to print a key."""
MOST_BYTES = 64 << 10


class KeyMissing(Exception):
    """There is no key at the moment. The message says where it was looked for; it is for the operator only."""


class Key(ABC):
    """The source of a key."""

    @abstractmethod
    async def get(self) -> str:
        """Return the key as it is now. Raises ``KeyMissing``."""

    def refused(self) -> None:
        """Forget the remembered key, because the provider does not accept it."""
        return


class EnvKey(Key):
    """A key from a variable of the daemon's own environment, which is read at each use."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def get(self) -> str:
        return _checked(os.environ.get(self._name, ""), f"the environment variable {self._name}")


class FileKey(Key):
    """A key from a file, which is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._key = ""

    async def get(self) -> str:
        try:
            found = await asyncio.to_thread(self._path.stat)
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp != self._stamp:
                self._key = _checked((await asyncio.to_thread(self._read)).decode(), f"the file {self._path}")
                self._stamp = stamp
        except (OSError, UnicodeDecodeError) as error:
            raise KeyMissing(f"the file {self._path} cannot be read: {error.__class__.__name__}") from None
        return self._key

    def _read(self) -> bytes:
        with self._path.open("rb") as file:
            return file.read(MOST_BYTES)

    def refused(self) -> None:
        self._stamp = None


class CommandKey(Key):
    """A key that a command prints. It runs again every ``seconds``, and after the provider refused the key."""

    def __init__(self, command: Sequence[str], seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._command = command
        self._seconds = seconds
        self._clock = clock
        self._key = ""
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def get(self) -> str:
        if self._clock() < self._until:
            return self._key
        async with self._lock:  # once, however many wait for it
            if self._clock() >= self._until:
                try:
                    self._key = await self._run()
                except KeyMissing as missing:
                    if not self._key:
                        raise
                    log.warning("models.key.stale", why=str(missing), next="the last one is used")
                self._until = self._clock() + self._seconds
        return self._key

    async def _run(self) -> str:
        name = f"the command {self._command[0]}"
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            raise KeyMissing(f"{name} cannot be run: {error.strerror}") from None
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                printed, _ = await process.communicate()
        except TimeoutError:
            raise KeyMissing(f"{name} has printed nothing for {COMMAND_SECONDS:.0f} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise KeyMissing(f"{name} has failed with status {process.returncode}")
        return _checked(printed.decode("utf-8", "replace"), name)

    def refused(self) -> None:
        self._until = 0.0


def _checked(text: str, source: str) -> str:
    key = text.strip()
    if not key:
        raise KeyMissing(f"there is no key in {source}")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise KeyMissing(f"what is in {source} is no key: it has characters that no key has")
    return key
