"""What a test does with a store in a process of its own; here, because a child must be able to import it."""

import asyncio

from holdfast.records.sessions import SessionRow
from holdfast.store import Store


def open_and_insert(url: str, row: SessionRow) -> None:
    async def run() -> None:
        store = await Store.open(url)
        await store.sessions.insert(row, max_live=None)
        await store.close()

    asyncio.run(run())
