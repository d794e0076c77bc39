"""Following numbered events, whatever becomes of connections and daemons in between."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final, Protocol, TypeVar

from holdfast.errors import Unavailable
from holdfast.sdk.transport import BACKOFF_SECONDS

SILENT_SECONDS: Final = 45.0
"""The daemon says something at least every 15 s; after three such times of silence it is gone."""
_LONGEST_PAUSE_SECONDS = 5.0


class Numbered(Protocol):
    @property
    def seq(self) -> int: ...


_Event = TypeVar("_Event", bound=Numbered)


async def followed(
    connect: Callable[[int | None], AsyncGenerator[_Event | None, None]], after: int | None, *, known: bool = False
) -> AsyncGenerator[_Event, None]:
    """For ever: a stream that ends or breaks is taken up again after the last event that came.

    ``connect`` is one connection, from after that number on; it yields None as soon as it stands. ``known``: there was
    a daemon a moment ago.
    """
    failures = 0
    while True:
        try:
            async with aclosing(connect(after)) as stream:
                async for event in stream:
                    known, failures = True, 0
                    if event is not None and (after is None or event.seq > after):
                        after = event.seq
                        yield event
        except Unavailable:
            if not known:  # there never was a daemon: say so, as every other call does
                raise
        failures += 1
        pause = min(BACKOFF_SECONDS * 2.0 ** min(failures, 20), _LONGEST_PAUSE_SECONDS)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
