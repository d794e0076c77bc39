"""The keys table in memory, for a real key ring without a database."""

import time
from collections.abc import Sequence
from dataclasses import replace

from holdfast.callers.ring import KeyRing
from holdfast.errors import Conflict, KeyNotFound
from holdfast.records.keys import KeyRow
from holdfast.store import KeyStore


class FakeKeyStore(KeyStore):
    """Set ``fail`` to have every call raise."""

    def __init__(self) -> None:
        self.rows: dict[str, KeyRow] = {}
        self.fail: Exception | None = None
        self.failed = 0

    def _trip(self) -> None:
        if self.fail is not None:
            self.failed += 1
            raise self.fail

    async def add(self, row: KeyRow) -> None:
        self._trip()
        if row.name in self.rows:
            raise Conflict(f"there is a key {row.name} already")
        self.rows[row.name] = row

    async def all(self) -> list[KeyRow]:
        self._trip()
        return sorted(self.rows.values(), key=lambda row: row.name)

    async def remove(self, name: str) -> KeyRow:
        self._trip()
        if name not in self.rows:
            raise KeyNotFound(f"there is no key {name}")
        return self.rows.pop(name)

    async def note_use(self, moments: Sequence[tuple[str, float]]) -> None:
        self._trip()
        for id, moment in moments:
            for row in [row for row in self.rows.values() if row.id == id]:
                self.rows[row.name] = replace(row, last_used_at=moment)


def key_ring(root_key: str) -> KeyRing:
    return KeyRing(FakeKeyStore(), root_key, clock=time.time)
