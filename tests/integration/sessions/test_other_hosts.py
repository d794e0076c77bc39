"""Several daemons on one database: a session is its own host's, and all others name that host and leave it alone."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.callers.types import ROOT
from holdfast.errors import SessionGone, WrongState
from holdfast.records.machine import PausedAs, Status
from holdfast.sessions.service import SessionService
from holdfast.sessions.types import CreateRequest, ForkRequest
from support.fake_host import FakeHost, new, run, tick

pytestmark = pytest.mark.anyio


@pytest.fixture
async def other(host: FakeHost, tmp_path: Path) -> AsyncIterator[FakeHost]:
    other = FakeHost(tmp_path / "other", host.whole, node="node_other")
    yield other
    await other.world.close()


Verb = Callable[[SessionService, str], Awaitable[object]]
VERBS: dict[str, Verb] = {
    "exec": lambda service, id: run(service, id, "echo hi"),
    "read": lambda service, id: service.read_file(id, "/a", max_bytes=None),
    "processes": lambda service, id: service.processes.list(id),
    "freeze": lambda service, id: service.pause(id, PausedAs.FROZEN),
    "sleep": lambda service, id: service.pause(id, None),
    "wake": lambda service, id: service.wake(id),
    "revive": lambda service, id: service.revive(id),
    "stats": lambda service, id: service.stats(id),
    "fork": lambda service, id: service.fork(id, ForkRequest(), idempotency_key=None, caller=ROOT),
    "snapshot": lambda service, id: service.snapshots.create(id, None, idempotency_key=None, caller=ROOT),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("asleep", [False, True], ids=["awake", "asleep"])
async def test_it_is_refused_by_the_name_of_its_host(host: FakeHost, other: FakeHost, verb: str, asleep: bool) -> None:
    async with host.daemon() as here, other.daemon() as there:
        session_id = await new(here)
        if asleep:
            await here.pause(session_id, PausedAs.FILES)
        before = await host.row(session_id)
        with pytest.raises(WrongState, match=f"{session_id} is on the host {host.node}"):
            await VERBS[verb](there, session_id)
        await tick(there)
        assert await host.row(session_id) == before
        assert [called for called, _session in other.driver.calls if called not in ("list", "prepare")] == []
        assert (await run(here, session_id, "echo hi")).stdout == b"hi\n"


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("freeze", "sleep")])
async def test_one_that_is_gone_is_gone_everywhere(host: FakeHost, other: FakeHost, verb: str) -> None:
    async with host.daemon() as here, other.daemon() as there:
        session_id = await new(here)
        await here.destroy(session_id)
        for service in (here, there):
            with pytest.raises(SessionGone):
                await VERBS[verb](service, session_id)


async def test_the_key_of_a_create_that_is_under_way_there(host: FakeHost, other: FakeHost) -> None:
    """It is not made here: its row says that it is there."""
    there = other.make_service()
    key = await there._planning.session(CreateRequest(), "one", ROOT.owner)
    await host.add_row(
        Status.CREATING, "ses_half", there, idempotency_key="one", idempotency_hash=key.record.idempotency_hash
    )
    async with host.daemon() as here:
        with pytest.raises(WrongState, match="ses_half is on the host node_other"):
            await here.create(CreateRequest(), idempotency_key="one", caller=ROOT)
        assert host.world.sandboxes == {}


async def test_one_that_was_destroyed_from_there_is_let_go_here(host: FakeHost, other: FakeHost) -> None:
    async with host.daemon() as here, other.daemon() as there:
        session_id = await new(here)
        await there.destroy(session_id)
        await tick(here)
        assert here._sessions.live(session_id) is None
        await host.assert_clean()
