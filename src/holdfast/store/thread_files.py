"""Files that came with messages and files that turns left behind: where they are, and whose."""

from collections.abc import Collection

from holdfast.store.database import Database
from holdfast.store.thread_rows import ThreadFileRow


class ThreadFiles:
    """The files of threads; only what is said of them, the bytes are elsewhere. Raises what ``ThreadStore`` raises."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, row: ThreadFileRow) -> ThreadFileRow:
        """Note a file whose bytes are in place; an id that is there already is returned as it is.

        Raises ``ThreadNotFound``. An upload has no turn until a turn takes its message up.
        """
        raise NotImplementedError

    async def get(self, thread_id: str, id: str) -> ThreadFileRow:
        """The file of this thread; raises ``FileMissing``, also if it is another thread's."""
        raise NotImplementedError

    async def of_thread(self, thread_id: str, *, kind: str | None = None) -> list[ThreadFileRow]:
        """All files of a thread, oldest first."""
        raise NotImplementedError

    async def of_turn(self, turn_id: str, *, kind: str | None = None) -> list[ThreadFileRow]:
        """What came with a turn's messages, and what it left behind."""
        raise NotImplementedError

    async def some(self, thread_id: str, ids: Collection[str]) -> list[ThreadFileRow]:
        """Those of these ids that there are, in the order asked for."""
        raise NotImplementedError

    async def remove_unused(self, *, older_than: float) -> list[str]:
        """Forget uploads that no message has named for so many seconds; returns their paths, for removal."""
        raise NotImplementedError
