"""The output of a command or process: it is kept in a ring and passed on to its followers.

A follower that is slower than the program slows the program down, as a pipe would: nothing that it has not seen is
dropped while it reads on. A follower that has stopped reading holds the program up only for a short time.
"""

from __future__ import annotations

from holdfast.runner.feed import STALLED_SECONDS
from holdfast.runner.ring import Ring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.protocol.frames import Header
    from holdfast.runner.feed import Feed
    from holdfast.runner.loop import Loop


class Output:
    """One program's output, its followers, and the last frame that they get."""

    def __init__(self, limit: int) -> None:
        self.ring = Ring(limit)
        self.end: Header | None = None
        self._feeds: list[Feed] = []
        self._on_room: Callable[[], None] | None = None
        self._kept_from: int | None = None

    def add(self, stream: int, data: bytes) -> None:
        self.ring.append(stream, data)
        self._tell()

    def finish(self, end: Header) -> None:
        """Note that no more output will come; followers get ``end`` after the last byte."""
        if self.end is None:
            self.end = end
            self._tell()

    def _tell(self) -> None:
        for feed in list(self._feeds):
            feed.send()

    def expect_follower(self, loop: Loop) -> None:
        """Keep all output for a follower that will come soon, but no longer than for one that reads nothing."""
        self._kept_from = self.ring.start
        loop.after(STALLED_SECONDS, self._expect_nobody)

    def _expect_nobody(self) -> None:
        self._kept_from = None
        self.progress()

    def attach(self, feed: Feed) -> None:
        self._feeds.append(feed)
        if self._on_room is not None:
            feed.expect_progress()
        self._expect_nobody()

    def detach(self, feed: Feed) -> None:
        if feed in self._feeds:
            self._feeds.remove(feed)
        self.progress()

    # -- back-pressure -----------------------------------------------------------------------------------------------

    def is_ahead(self) -> bool:
        """Whether reading more would soon drop bytes that a follower has not seen."""
        return self._lead() > self.ring.limit // 2

    def _lead(self) -> int:
        read_up_to = [feed.position for feed in self._feeds if feed.holds]
        if self._kept_from is not None:
            read_up_to.append(self._kept_from)
        return self.ring.written - min(read_up_to, default=self.ring.written)

    @property
    def waiting(self) -> bool:
        """Whether the program has to wait for its followers."""
        return self._on_room is not None

    def wait_for_room(self, on_room: Callable[[], None]) -> None:
        """Call back, once, when the followers have caught up."""
        self._on_room = on_room
        for feed in self._feeds:
            feed.expect_progress()

    def progress(self) -> None:
        """Note that a follower has read more, or is gone."""
        if self._on_room is not None and self._lead() <= self.ring.limit // 4:
            on_room, self._on_room = self._on_room, None
            on_room()
