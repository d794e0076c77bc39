"""Lines from standard input, without blocking the event loop, whether it is a terminal, a pipe or a file."""

import asyncio
import os
import sys
from collections import deque

CHUNK = 1 << 16
CONTINUED = "\\"


class TypedLines:
    """``next`` gives each line, and None at the end. A backslash at the end of a line joins it with the next one."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = sys.stdin.fileno() if fd is None else fd
        self._buffer = bytearray()
        self._lines: deque[str] = deque()
        self._ended = False
        self._plain = False
        """Whether it is always ready: a file."""

    @property
    def is_terminal(self) -> bool:
        return os.isatty(self._fd)

    def ask(self, prompt: str) -> None:
        """Show that something is waited for, if somebody sits there."""
        if prompt and not self._lines and self.is_terminal:
            sys.stderr.write(prompt)
            sys.stderr.flush()

    async def close(self) -> None:
        """Do nothing: no resource is held."""

    async def next(self, prompt: str = "") -> str | None:
        parts: list[str] = []
        while True:
            self.ask(prompt)
            line = await self._line()
            if line is None:
                return "\n".join(parts) if parts else None
            if not line.endswith(CONTINUED):
                return "\n".join([*parts, line])
            parts.append(line.removesuffix(CONTINUED))

    async def _line(self) -> str | None:
        while not self._lines:
            if self._ended:
                return None
            await self._ready()
            self._take(os.read(self._fd, CHUNK))
        return self._lines.popleft()

    def _take(self, piece: bytes) -> None:
        self._buffer += piece
        if not piece:
            self._ended = True
            if self._buffer:
                self._buffer += b"\n"
        *whole, rest = bytes(self._buffer).split(b"\n")
        self._lines.extend(line.decode(errors="replace").removesuffix("\r") for line in whole)
        self._buffer = bytearray(rest)

    async def _ready(self) -> None:
        """Wait until there is something to read; this can be canceled."""
        if self._plain:
            return
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        try:
            loop.add_reader(self._fd, ready.set)
        except PermissionError:  # a file cannot be waited for, and need not be
            self._plain = True
            return
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._fd)
