"""Patterns such as ``src/**/*.py``: components matched one by one, ``**`` standing for any number of them.

A pattern is a small machine whose states are positions in its list of components. A walk down a tree carries the set of
positions that are still possible, and need not enter a folder for which that set is empty.
"""

from __future__ import annotations

import fnmatch
import re

from holdfast.runner.lean import Callable

States = frozenset[int]

ANY_DEPTH = "**"
MAX_PARTS = 64


class Glob:
    """One pattern. ``*``, ``?`` and ``[…]`` within a component work as in fnmatch; a leading dot is not special."""

    def __init__(self, pattern: str) -> None:
        """Raises ``ValueError`` for a pattern that can match nothing."""
        self._parts = [part for part in pattern.split("/") if part]
        if not self._parts or pattern.startswith("/") or {".", ".."} & set(self._parts):
            raise ValueError("must be relative to path, without . and .. in it")
        if len(self._parts) > MAX_PARTS:
            raise ValueError(f"must not have more than {MAX_PARTS} parts")
        self._matches: list[Callable[[str], object] | None] = [
            None if part == ANY_DEPTH else re.compile(fnmatch.translate(part)).match for part in self._parts
        ]

    def start(self) -> States:
        return self._closed({0})

    def step(self, states: States, name: str) -> States:
        """Return the states that are possible one component further down."""
        following = set()
        for state in states:
            if state < len(self._matches):
                match = self._matches[state]
                if match is None:
                    following.add(state)
                elif match(name):
                    following.add(state + 1)
        return self._closed(following)

    def accepts(self, states: States) -> bool:
        return len(self._parts) in states

    def goes_deeper(self, states: States) -> bool:
        """Say whether something below could still match."""
        return any(state < len(self._parts) for state in states)

    def _closed(self, states: set[int]) -> States:
        """These states and all that can be reached without a further component, because ``**`` may stand for none."""
        found = set()
        for state in states:
            found.add(state)
            while state < len(self._parts) and self._parts[state] == ANY_DEPTH:
                state += 1
                found.add(state)
        return frozenset(found)
