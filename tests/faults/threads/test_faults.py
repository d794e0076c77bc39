"""Each thing that can break under a thread, on a fake machine: what the user sees, what the row says, which sandboxes.

docs/failures.md has a row for each; what is not here is in tests/integration/threads.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from holdfast.errors import AgentDown, AgentFailed, AgentSessionMissing, DiskFull, HoldfastError
from holdfast.vocabulary.turn_events import Kind
from support.machine.full_disk import small_disk
from support.servers.postgres import MISSING, Postgres, running_postgres
from support.threads.threads import REF, STEADY, FakeSite, ThreadDaemon, open_site, pieces, refusals, text_of
from support.waiting import until

pytestmark = pytest.mark.anyio

DAY = 24 * 3600.0


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[FakeSite]:
    async with open_site(tmp_path) as site:
        yield site


async def session_of(thread_daemon: ThreadDaemon) -> str:
    session = (await thread_daemon.threads.get(REF)).row.session_id
    assert session is not None
    return session


async def check_whole(site: FakeSite, thread_daemon: ThreadDaemon, sandbox: str | None) -> None:
    """Nothing ran twice, nothing was told twice or left out; the same one sandbox; the row has no complaint."""
    thread = await thread_daemon.threads.get(REF)
    events = await thread_daemon.events()
    ran = [prompt for _session, prompt in site.agents.ran]
    finals = [event.turn_id for event in events if event.kind == Kind.FINALIZE]
    assert len(ran) == len(set(ran))
    assert len(finals) == len(set(finals))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert site.sandboxes() == [thread.row.session_id]
    assert sandbox in (None, thread.row.session_id)
    assert (thread.row.last_error, thread.row.resume_failures) == (None, 0)


# -- the agent -------------------------------------------------------------------------------------------------------

FAULTS: dict[str, HoldfastError | None] = {
    "5xx": AgentFailed("the agent answers 503"),
    "404": AgentSessionMissing("the agent answers 404"),
    "garbage": AgentFailed("the agent's answer makes no sense: <html>"),
    "down": AgentDown("nobody listens"),
    "nothing": None,  # hangs, until the adapter's deadline
}


@pytest.mark.parametrize("method", ["start", "create_conversation", "resume_conversation", "prompt", "events"])
async def test_an_agent_that_fails_once_answers_all_the_same(site: FakeSite, method: str) -> None:
    """With 5xx, 404, garbage, a closed door, or not at all."""
    async with site.daemon(STEADY) as thread_daemon:
        await thread_daemon.talk("say hello", "m0")
        sandbox = await session_of(thread_daemon)
        for name, error in FAULTS.items():
            if method == "start":
                site.agents.kill(sandbox)
            if method == "create_conversation":
                site.agents.forget(sandbox)
            if error is None and method == "events":
                continue  # silence is what a turn may do: an agent that hangs in it is another test
            thread_daemon.agent.inject(method, error=error, hang=error is None)
            turn = await thread_daemon.talk("recall hello", name)
            assert (turn.row.stop_reason, turn.row.answer) == ("end_turn", "yes\n"), name
        await check_whole(site, thread_daemon, sandbox)
    assert site.host.count("create") == 1


@pytest.mark.parametrize("method", ["resume_conversation", "prompt", "events"])
async def test_an_agent_that_fails_for_good_is_reported_and_back_when_it_is_well(site: FakeSite, method: str) -> None:
    """Never a new sandbox: nothing of this proves that the old one is gone."""
    async with site.daemon(STEADY) as thread_daemon:
        await thread_daemon.talk("say hello", "m0")
        sandbox = await session_of(thread_daemon)
    async with site.daemon(STEADY, resolve_seconds=0.3) as thread_daemon:
        thread_daemon.agent.inject(method, error=FAULTS["5xx"], times=None)
        turn = await thread_daemon.talk("recall hello", "m1")
        assert (turn.row.stop_reason, (turn.row.error or {})["code"]) == ("error", "agent_failed")
        assert (await thread_daemon.threads.message(REF, "m1")).status == "failed"
        thread_daemon.agent.release(method)
    async with site.daemon(STEADY) as thread_daemon:
        assert (await thread_daemon.talk("recall hello", "m2")).row.answer == "yes\n"
        await check_whole(site, thread_daemon, sandbox)
    assert site.host.count("create") == 0  # since the first daemon


# -- the runner and its link -----------------------------------------------------------------------------------------


async def test_a_runner_that_hangs_is_reported_and_its_thread_goes_on_when_it_answers(site: FakeSite) -> None:
    async with site.daemon(STEADY) as thread_daemon:
        await thread_daemon.talk("write /workspace/a kelp\nsay kelp", "m0")
        sandbox = await session_of(thread_daemon)
    async with site.daemon(STEADY, resolve_seconds=0.3) as thread_daemon:
        thread_daemon.driver.freeze(sandbox)
        turn = await thread_daemon.talk("say nobody hears this", "m1")
        thread = await thread_daemon.threads.get(REF)
        assert turn.row.stop_reason == "error" and turn.row.error
        assert thread.row.session_id == sandbox and thread.row.resume_failures == 1 and thread.row.last_error
        thread_daemon.driver.thaw(sandbox)
    async with site.daemon(STEADY) as thread_daemon:
        assert (await thread_daemon.talk("recall kelp", "m2")).row.answer == "yes\n"
        await check_whole(site, thread_daemon, sandbox)
    assert site.host.world.sandboxes[sandbox].files["/workspace/a"] == b"kelp"


async def test_a_link_that_is_cut_between_deltas_loses_and_doubles_nothing(site: FakeSite) -> None:
    async with site.daemon(STEADY) as thread_daemon:
        script = "\n".join(f"say {number}\nsleep 0.02" for number in range(20))
        await thread_daemon.say(script, "m1")
        await thread_daemon.wait_for(Kind.TEXT_DELTA)
        sandbox = await session_of(thread_daemon)
        for number in range(2, 12, 2):
            thread_daemon.driver.cut_link(sandbox)
            await until(partial(_told, thread_daemon, f"{number}\n"), "it goes on")
        turn = await thread_daemon.ended("m1")
        assert turn.row.stop_reason == "end_turn"
        assert text_of(await thread_daemon.events()).split() == [str(number) for number in range(20)]
        await check_whole(site, thread_daemon, sandbox)


async def _told(thread_daemon: ThreadDaemon, word: str) -> bool:
    return word in text_of(await thread_daemon.events())


# -- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [30 * DAY, -30 * DAY], ids=["forward", "back"])
async def test_a_clock_that_jumps_changes_nothing(site: FakeSite, jump: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a turn, and between two; with the database's clock, which leases and idleness go by."""
    real, wrong = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + wrong[0])
    async with site.daemon(STEADY) as thread_daemon:
        await thread_daemon.say("say one\nwait-for /workspace/go\nsay two", "m1")
        await thread_daemon.wait_for(Kind.TEXT_DELTA)
        sandbox = await session_of(thread_daemon)
        site.host.clock.now += jump
        wrong[0] = jump
        await thread_daemon.threads.janitor.tick()
        site.host.world.sandboxes[sandbox].files["/workspace/go"] = b""
        assert (await thread_daemon.ended("m1")).row.stop_reason == "end_turn"
        await thread_daemon.threads.janitor.tick()
        await thread_daemon.sessions._housekeeping.tick()
        assert (await thread_daemon.talk("recall two", "m2")).row.answer == "yes\n"
        await check_whole(site, thread_daemon, sandbox)
    async with site.daemon(STEADY) as thread_daemon:
        site.host.clock.now -= jump
        wrong[0] = 0.0
        assert (await thread_daemon.talk("recall two", "m3")).row.answer == "yes\n"
        await check_whole(site, thread_daemon, sandbox)


# -- disks -----------------------------------------------------------------------------------------------------------


async def test_a_turn_waits_for_room_when_the_databases_disk_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "16m") as disk:
        async with open_site(disk.path) as site, site.daemon(STEADY) as thread_daemon:
            await thread_daemon.talk("say hello", "m0")
            sandbox = await session_of(thread_daemon)
            await thread_daemon.say("say one\nwait-for /workspace/go\ncount 2000", "m1")
            await thread_daemon.wait_for(Kind.TEXT_DELTA, after=(await thread_daemon.events())[-1].seq)
            refused = refusals(thread_daemon)
            disk.fill_around(disk.path / "test.db")
            site.host.world.sandboxes[sandbox].files["/workspace/go"] = b""
            await until(lambda: _ended(site), "the agent is done")
            await until(lambda: len(refused) > 1, "what it said finds no room, also when it is tried again")
            with pytest.raises(DiskFull):
                await thread_daemon.say("say more", "m2")
            disk.free()
            turn = await thread_daemon.ended("m1")
            assert turn.row.stop_reason == "end_turn"
            assert text_of(await thread_daemon.events(), turn.row.id).split() == ["one", *map(str, range(2000))]
            await check_whole(site, thread_daemon, sandbox)


def _ended(site: FakeSite) -> bool:
    homes = site.agents._homes.values()
    return all(turn.ended for home in homes for session in home.sessions.values() for turn in session.turns.values())


async def test_files_that_find_no_room_are_told_and_do_not_spoil_the_turn(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        with small_disk(tmp_path / "files", "128k") as disk:
            async with site.daemon(STEADY) as thread_daemon:
                await thread_daemon.talk("say hello", "m0")
                disk.fill()
                with pytest.raises(DiskFull):
                    await thread_daemon.threads.upload(REF, "a.bin", pieces(b"x" * 100_000))
                turn = await thread_daemon.talk("write /workspace/output/display/a.txt kelp", "m1")
                told = [event.data for event in await thread_daemon.events() if event.kind == Kind.ERROR]
                assert (turn.row.stop_reason, list(turn.artifacts)) == ("end_turn", [])
                assert [data["code"] for data in told] == ["disk_full"]
                disk.free()
                assert (await thread_daemon.threads.upload(REF, "a.bin", pieces(b"x" * 1000))).size == 1000
                await check_whole(site, thread_daemon, None)


async def test_a_sandbox_whose_disk_is_full_is_told_and_kept(site: FakeSite) -> None:
    """Of what needs no room, nothing is wrong. What does, ends its turn with an error, and the sandbox is the same."""
    async with site.daemon(STEADY) as thread_daemon:
        await thread_daemon.talk("say hello", "m0")
        sandbox = await session_of(thread_daemon)
        file = await thread_daemon.threads.upload(REF, "a.bin", pieces(b"x" * 1000))
        thread_daemon.driver.fill_disk(sandbox)
        turn = await thread_daemon.talk("say so far\nwrite /workspace/a kelp", "m1")
        assert (turn.row.stop_reason, (turn.row.error or {})["code"], turn.row.answer) == (
            "error",
            "write_failed",
            "so far\n",
        )
        await thread_daemon.say("say never said", "m2", attachments=[file.id])
        turn = await thread_daemon.ended("m2")
        assert (turn.row.stop_reason, (turn.row.error or {})["code"], turn.row.attempts) == ("error", "disk_full", 0)
        assert (await thread_daemon.talk("recall hello", "m3")).row.answer == "yes\n"
        thread_daemon.driver.free_disk(sandbox)
        await thread_daemon.say("write /workspace/a kelp\nrecall hello", "m4", attachments=[file.id])
        assert (await thread_daemon.ended("m4")).row.answer == "yes\n"
        assert site.host.world.sandboxes[sandbox].files["/workspace/a"] == b"kelp"
        await check_whole(site, thread_daemon, sandbox)
    assert site.host.count("create") == 1


# -- the database ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        if server is None:
            pytest.skip(MISSING)
        yield server


async def test_postgres_may_crash_and_come_back_in_the_middle_of_a_turn(tmp_path: Path, postgres: Postgres) -> None:
    name = f"test_{uuid.uuid4().hex}"
    postgres.create(name)
    steady = replace(STEADY, lease_seconds=1000.0)  # nobody takes over: the same daemon goes on, and soon
    async with open_site(tmp_path, postgres.url(name)) as site, site.daemon(steady) as thread_daemon:
        await thread_daemon.say("say one\nwait-for /workspace/go\n" + "\n".join(f"say {n}" for n in range(50)), "m1")
        await thread_daemon.wait_for(Kind.TEXT_DELTA)
        sandbox = await session_of(thread_daemon)
        await asyncio.to_thread(postgres.stop)
        site.host.world.sandboxes[sandbox].files["/workspace/go"] = b""
        await until(lambda: _ended(site), "the agent is done")
        waiting = asyncio.create_task(thread_daemon.say("say hello?", "m2"))
        await asyncio.to_thread(postgres.start)
        with contextlib.suppress(HoldfastError):  # refused: the client sends it again
            await waiting
        assert (await thread_daemon.talk("say hello?", "m2")).row.answer == "hello?\n"
        turn = await thread_daemon.ended("m1")
        assert turn.row.stop_reason == "end_turn"
        assert text_of(await thread_daemon.events(), turn.row.id).split() == ["one", *map(str, range(50))]
        assert (await thread_daemon.talk("recall one", "m3")).row.answer == "yes\n"
        await check_whole(site, thread_daemon, sandbox)
