"""Following numbered events, whatever becomes of connections and daemons in between."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final, Protocol, TypeVar

from holdfast.errors import Unavailable
from holdfast.sdk.connection.transport import BACKOFF_SECONDS

SILENT_SECONDS: Final = 45.0
"""The daemon says something at least every 15 s; after three such times of silence it is gone."""
AWAY_SECONDS = 3.0
"""A daemon that starts again is back sooner, most often; longer than this is worth a word."""
_LONGEST_PAUSE_SECONDS = 5.0

Answers = Callable[[bool], None]
"""Told False when the daemon has not answered for a while, and True when it does again."""


class Numbered(Protocol):
    @property
    def seq(self) -> int: ...


_Event = TypeVar("_Event", bound=Numbered)


async def followed(
    connect: Callable[[int | None], AsyncGenerator[_Event | None, None]],
    after: int | None,
    *,
    known: bool = False,
    answers: Answers | None = None,
) -> AsyncGenerator[_Event, None]:
    """Follow for ever: a stream that ends or breaks is taken up again after the last event that came.

    ``connect`` is one connection, from after that number on; it yields None as soon as it stands. ``known``: there was
    a daemon a moment ago.
    """
    failures, absence = 0, _Absence(answers)
    while True:
        try:
            async with aclosing(connect(after)) as stream:
                async for event in stream:
                    known, failures = True, 0
                    absence.over()
                    if event is not None and (after is None or event.seq > after):
                        after = event.seq
                        yield event
        except Unavailable:
            if not known:  # there never was a daemon: say so, as every other call does
                raise
        failures += 1
        absence.goes_on()
        pause = min(BACKOFF_SECONDS * 2.0 ** min(failures, 20), _LONGEST_PAUSE_SECONDS)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311


class _Absence:
    """Knows for how long nobody has answered, and whether that was told."""

    def __init__(self, answers: Answers | None) -> None:
        self._answers = answers
        self._since: float | None = None
        self._told = False

    def goes_on(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
        elif now - self._since >= AWAY_SECONDS and not self._told:
            self._told = True
            self._tell(False)

    def over(self) -> None:
        self._since = None
        if self._told:
            self._told = False
            self._tell(True)

    def _tell(self, there: bool) -> None:
        if self._answers is not None:
            self._answers(there)
