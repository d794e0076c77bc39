"""A daemon on the fake machine of a site that dies where its fuse says: cut off from the machine and the database."""

import contextlib
from collections.abc import AsyncIterator

from holdfast.store import Store
from support.daemons.crash_points import CuttingFuse, wire, wire_store
from support.fake_host import FakeHost
from support.threads.threads import STEADY, FakeSite, ThreadDaemon


@contextlib.asynccontextmanager
async def doomed(site: FakeSite, fuse: CuttingFuse) -> AsyncIterator[ThreadDaemon]:
    """On the same machine and database as the others of the site. At the end it dies, if it has not."""
    async with _cut_off(site, fuse) as daemon:
        try:
            yield daemon
        finally:
            fuse.bury()


@contextlib.asynccontextmanager
async def mortal(site: FakeSite, fuse: CuttingFuse) -> AsyncIterator[ThreadDaemon]:
    """The same, with an orderly end unless it has died before."""
    async with _cut_off(site, fuse) as daemon:
        wire(daemon.tools.store.thread_requests, fuse, "thread_requests")
        yield daemon
        fuse.lit = False


@contextlib.asynccontextmanager
async def _cut_off(site: FakeSite, fuse: CuttingFuse) -> AsyncIterator[ThreadDaemon]:
    store = await Store.open(site.url)
    wire_store(store, fuse)
    host = FakeHost(site.root, store)
    host.world, host.clock = site.host.world, site.host.clock
    end = FakeSite(host, store, site.url, site.root)
    end.agents, end.session_settings = site.agents, site.session_settings
    try:
        async with end.daemon(STEADY) as daemon:
            wire(daemon.driver, fuse, "driver")
            wire(daemon.agent, fuse, "agent")
            fuse.lit = True
            yield daemon
    finally:
        await store.close()
