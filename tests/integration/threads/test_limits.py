"""Ceilings and threads: refused at the door, kept with the thread, and never what makes a thread lose its sandbox."""

from dataclasses import replace

import pytest

from holdfast.callers.ceilings import Ceilings
from holdfast.errors import LimitOutOfRange, ThreadNotFound
from holdfast.records.threads import NewMessage
from holdfast.threads.names import ThreadRef
from holdfast.threads.types import ThreadOptions
from support.threads.threads import FakeSite

pytestmark = pytest.mark.anyio

ADA = ThreadRef("ada", "dm:1", None, Ceilings(max_memory_mb=128, max_pids=48))


async def test_more_than_the_key_may_have_is_refused_before_anything_is_made(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        for wish in (ThreadOptions(memory_mb=129), ThreadOptions(pids=49), ThreadOptions(memory_mb=1)):
            with pytest.raises(LimitOutOfRange):
                await daemon.threads.resolve(ADA, wish)
            with pytest.raises(LimitOutOfRange):
                await daemon.threads.send(ADA, NewMessage("m1", "hello"), wish)
        with pytest.raises(ThreadNotFound):
            await daemon.threads.get(ADA)


async def test_its_sandboxes_have_no_more_now_and_later(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        made = await daemon.threads.resolve(ADA, ThreadOptions(memory_mb=128))
        limits = (await daemon.sessions.get(made.session_id)).spec.limits
        assert (limits.memory_mb, limits.pids) == (128, 48), "the default of 64 processes is lowered"
        with pytest.raises(
            LimitOutOfRange, match=r"limits\.memory_mb: 129 is more than 128, the max_memory_mb of this"
        ):
            await daemon.threads.resolve(ADA, ThreadOptions(memory_mb=129))
        await daemon.sessions.destroy(made.session_id)
        again = await daemon.threads.resolve(replace(ADA, ceilings=Ceilings()))
        session = await daemon.sessions.get(again.session_id)
        assert (session.spec.limits.memory_mb, session.spec.limits.pids) == (128, 48), "they are kept with the thread"
