"""A walk through a tree: depth first, names in a fixed order, resumable after any entry. Links are never followed."""

from __future__ import annotations

import errno
import heapq
import os
import stat

from holdfast.runner.lean import Iterator
from holdfast.runner.refused import Refused
from holdfast.runner.tasks.globs import Glob, States
from holdfast.runner.tasks.sight import Sight

Step = tuple[str, list[str] | None]

BATCH = 2048
"""Names that are held at once for each folder on the way down; a larger folder is read several times."""
_NOT_ENTERED = (errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


class Walk:
    """One walk. Folders below the top that may not be read are listed, and not entered."""

    def __init__(
        self, top: str, *, after: list[str], recursive: bool, hidden: bool, glob: Glob | None, sight: Sight = os
    ) -> None:
        self._top = top
        self._after = after
        self._recursive = recursive
        self._hidden = hidden
        self._glob = glob
        self._sight = sight

    def entries(self) -> Iterator[tuple[str, os.stat_result | None]]:
        """Yield the path below the top and what it is; None for what the pattern does not want, as a sign of life."""
        states = self._glob.start() if self._glob else None
        stack = [("", states, self._steps(self._top, self._after))]
        while stack:
            prefix, states, steps = stack[-1]
            step = self._next(steps, is_top=len(stack) == 1)
            if step is None:
                stack.pop()
                continue
            name, resume = step
            relative = f"{prefix}{name}"
            info = self._look(os.path.join(self._top, relative))
            if info is None:
                continue
            below = self._glob.step(states, name) if self._glob and states is not None else None
            if resume is None:  # otherwise it was told of on the page before
                yield relative, info if self._wants(below) else None
            if self._recursive and stat.S_ISDIR(info.st_mode) and self._goes_deeper(below):
                path = os.path.join(self._top, relative)
                stack.append((f"{relative}/", below, self._steps(path, resume or [])))

    def _wants(self, states: States | None) -> bool:
        return self._glob is None or states is None or self._glob.accepts(states)

    def _goes_deeper(self, states: States | None) -> bool:
        return self._glob is None or states is None or self._glob.goes_deeper(states)

    def _next(self, steps: Iterator[Step], *, is_top: bool) -> Step | None:
        try:
            return next(steps, None)
        except OSError as error:
            if is_top and error.errno == errno.ENOTDIR:
                raise Refused("not_a_directory", f"{self._top} is no folder") from None
            if is_top or error.errno not in _NOT_ENTERED:
                raise
            return None

    def _steps(self, folder: str, after: list[str]) -> Iterator[Step]:
        """The names in a folder; first the one that the last page ended in or below, with what is left of the way."""
        last = ""
        if after:
            last = after[0]
            yield last, after[1:]
        while True:
            batch = heapq.nsmallest(BATCH, self._names(folder, last))
            for name in batch:
                yield name, None
            if len(batch) < BATCH:
                return
            last = batch[-1]

    def _names(self, folder: str, last: str) -> Iterator[str]:
        with self._sight.scandir(folder) as entries:
            for entry in entries:
                if entry.name > last and (self._hidden or not entry.name.startswith(".")):
                    yield entry.name

    def _look(self, path: str) -> os.stat_result | None:
        try:
            return self._sight.lstat(path)
        except OSError:
            return None  # gone in this moment, too deep to be named, or not to be seen
