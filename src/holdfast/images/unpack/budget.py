"""How much one import may use, and whether it should still go on. Hostile archives are small and unpack for ever."""

import threading

from holdfast.errors import TooLarge, Unavailable

MAX_BYTES = 64 << 30
MAX_ENTRIES = 2_000_000


class Budget:
    """Counts what an import makes. Everything that copies asks it, so that a cancelled import stops soon."""

    def __init__(self, max_bytes: int = MAX_BYTES, max_entries: int = MAX_ENTRIES) -> None:
        self.max_bytes = max_bytes
        self.max_entries = max_entries
        self.bytes = 0
        self.entries = 0
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    def check(self) -> None:
        if self._cancelled.is_set():
            raise Unavailable("the import was cancelled; nothing was kept")

    def entry(self, size: int = 0) -> None:
        """One more entry of ``size`` bytes, as large as it will look: a sparse file counts in full."""
        self.check()
        self.entries += 1
        self.bytes += size
        if self.entries > self.max_entries:
            raise TooLarge(f"the image has more than {self.max_entries} files; make it smaller")
        if self.bytes > self.max_bytes:
            raise TooLarge(f"the image unpacks to more than {self.max_bytes >> 20} MB; make it smaller")
