"""The real table of keys, on a database that can be away."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from holdfast.records.keys import KeyRow
from holdfast.store import KeyStore
from support.api_host import open_store


class FlakyKeys(KeyStore):
    """Set ``fail`` to have every call raise; ``failed`` counts those that did."""

    fail: Exception | None = None
    failed = 0

    def _trip(self) -> None:
        if self.fail is not None:
            self.failed += 1
            raise self.fail

    async def add(self, row: KeyRow) -> None:
        self._trip()
        await super().add(row)

    async def all(self) -> list[KeyRow]:
        self._trip()
        return await super().all()

    async def remove(self, name: str) -> KeyRow:
        self._trip()
        return await super().remove(name)

    async def note_use(self, moments: Sequence[tuple[str, float]]) -> None:
        self._trip()
        await super().note_use(moments)

    async def last_use(self, name: str) -> float | None:
        """What the table says, also while it is away."""
        [row] = [row for row in await super().all() if row.name == name]
        return row.last_used_at


@contextlib.asynccontextmanager
async def flaky_keys(root: Path, kind: type[FlakyKeys] = FlakyKeys) -> AsyncIterator[FlakyKeys]:
    store = await open_store(root / "keys.db")
    try:
        yield kind(store.keys._database)
    finally:
        await store.close()
