"""A daemon on the fake machine of a street that dies where its fuse says: cut off from the machine and the database."""

import contextlib
from collections.abc import AsyncIterator

from holdfast.store import Store
from support.daemons.crash_points import CuttingFuse, wire, wire_store
from support.house import House
from support.threads.threads import STEADY, Desk, Street


@contextlib.asynccontextmanager
async def doomed(street: Street, fuse: CuttingFuse) -> AsyncIterator[Desk]:
    """On the same machine and database as the others of the street. At the end it dies, if it has not."""
    async with _cut_off(street, fuse) as desk:
        try:
            yield desk
        finally:
            fuse.bury()


@contextlib.asynccontextmanager
async def mortal(street: Street, fuse: CuttingFuse) -> AsyncIterator[Desk]:
    """The same, with an orderly end unless it has died before."""
    async with _cut_off(street, fuse) as desk:
        wire(desk.tools.store.thread_requests, fuse, "thread_requests")
        yield desk
        fuse.lit = False


@contextlib.asynccontextmanager
async def _cut_off(street: Street, fuse: CuttingFuse) -> AsyncIterator[Desk]:
    store = await Store.open(street.url)
    wire_store(store, fuse)
    house = House(street.root, store)
    house.world, house.clock = street.house.world, street.house.clock
    end = Street(house, store, street.url, street.root)
    end.agents, end.session_settings = street.agents, street.session_settings
    try:
        async with end.daemon(STEADY) as desk:
            wire(desk.driver, fuse, "driver")
            wire(desk.agent, fuse, "agent")
            fuse.lit = True
            yield desk
    finally:
        await store.close()
