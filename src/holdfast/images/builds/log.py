"""What a build says: kept whole in a file, its last lines for an error, and its steps for whoever watches."""

import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Self

from holdfast.images.builds.script import STEP

Tell = Callable[[str, str], None]
"""Told of each step: the image that is being built, and what is done for it."""

_TAIL_LINES = 12
_LINE_BYTES = 2000
_SHOWN_CHARACTERS = 300
_MMDEBSTRAP = re.compile(r"I: (.+?)\.*")
_SHOWN = re.compile(r"(running apt-get|downloading|extracting|installing|cleaning|creating tarball).*")


class BuildLog:
    """A file at ``path``, written anew."""

    def __init__(self, path: Path, image: str, tell: Tell) -> None:
        self.path = path
        self._image = image
        self._tell = tell
        self._file = open(path, "wb")  # noqa: SIM115 - closed by __exit__
        self._rest = b""
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._rest:
            self._line(self._rest)
        self._file.close()

    def hear(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._file.flush()
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[-_LINE_BYTES:]
        for line in lines:
            self._line(line)

    def step(self, what: str) -> None:
        """A step of our own."""
        self.hear(f"{STEP}{what}\n".encode())

    def tail(self) -> str:
        """Return the last lines, without the lines about steps."""
        return "\n".join(self._tail)

    def _line(self, raw: bytes) -> None:
        line = raw[:_LINE_BYTES].decode(errors="replace").rpartition("\r")[2].rstrip()
        if line.startswith(STEP):
            self._tell(self._image, line.removeprefix(STEP))
        elif found := _MMDEBSTRAP.fullmatch(line):
            if _SHOWN.fullmatch(found[1]):
                self._tell(self._image, found[1])
        elif line:
            self._tail.append(line[:_SHOWN_CHARACTERS])
