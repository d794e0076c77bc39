"""Two daemons on one Postgres: one stands still past its lease and goes on; both are asked for the same at once."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

import support
from holdfast.callers.types import ROOT
from holdfast.errors import Unavailable
from holdfast.records.threads import Mode
from holdfast.store import Store
from holdfast.store.database.engine import parse_url, postgres_engine
from holdfast.store.tables import sessions
from holdfast.store.threads.tables import threads
from holdfast.threads.names import ThreadRef
from holdfast.threads.types import How
from holdfast.vocabulary.turn_events import Kind
from support.agents.sites import open_agent_site
from support.threads.hosts import Host, ran, sandboxes
from support.threads.real_threads import RealSite, RealThreadDaemon, forgotten, only, opened, remembers, sandbox_of
from support.threads.threads import REF, STEADY, ThreadDaemon, text_of
from support.waiting import linger, until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(3600)]

RACES = int(os.environ.get("TEST_RACES", "60"))
ROUND = 200
"""Threads that are there at the same time; raced for at the same time are a few, as a daemon has few connections."""
AT_ONCE = 8
REAL_RACES, REAL_AT_ONCE = 10, 3
FEW_RACES = 2
"""With agents that take long to start."""
RACING = replace(
    STEADY,
    lease_seconds=600.0,
    ask_seconds=600.0,
    resolve_seconds=600.0,
    retry_seconds=0.2,
    poll_seconds=2.0,  # so many look that it would be all that the machine does
    heartbeat_seconds=2.0,
)


@contextlib.asynccontextmanager
async def child(root: Path, url: str, agent: str = "fake") -> AsyncIterator[asyncio.subprocess.Process]:
    program = str(Path(next(iter(support.__path__))) / "daemons" / "thread_child.py")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, program, "node_child", str(root), url, agent),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def heard(process: asyncio.subprocess.Process, word: str) -> None:
    """Until it says so; its log is between."""
    assert process.stdout is not None
    async with asyncio.timeout(180):  # some agents take long to start on a busy machine
        while line := await process.stdout.readline():
            if line.decode().strip() == word:
                return
    raise AssertionError(f"the child ended without saying {word}")


async def test_a_daemon_stopped_past_its_lease_does_no_harm_when_it_goes_on(tmp_path: Path, url: str) -> None:
    """SIGSTOP: its host is given up, its thread served elsewhere. SIGCONT: it writes nothing, its sandbox goes."""
    here = Host("node_here", tmp_path / "here", url)
    settings = replace(STEADY, node_silent_seconds=1.0, node_grace_seconds=4.0)
    async with child(tmp_path / "child", url) as process, contextlib.AsyncExitStack() as stack:
        await heard(process, "begun")
        await stack.enter_async_context(here.up())
        thread_daemon = await stack.enter_async_context(here.daemon(settings))
        process.send_signal(signal.SIGSTOP)
        cut = await thread_daemon.ended("m1")
        turn = await thread_daemon.talk("recall begun", "m2")
        before = await thread_daemon.events()
        process.send_signal(signal.SIGCONT)
        await heard(process, "empty")
        assert await process.wait() == 0
        events = await thread_daemon.events()
        thread = await thread_daemon.threads.get(REF)
        assert (await thread_daemon.talk("recall begun", "m3")).row.answer == "yes\n"
        assert sandboxes(here) == [thread.row.session_id]
    assert (cut.row.stop_reason, (cut.row.error or {})["code"]) == ("error", "sandbox_lost")
    assert turn.row.answer == "yes\n"
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events == before  # not one word of the other, who never stopped talking
    assert [event.turn_id for event in events if event.kind == Kind.FINALIZE] == [cut.row.id, turn.row.id]
    assert text_of(events, cut.row.id).split()[:2] == ["begun", "more"]


@pytest.mark.scripted_first
async def test_a_daemon_with_real_sandboxes_stopped_past_its_lease(agent_site: RealSite, url: str) -> None:
    """The same on two hosts with real sandboxes: the agent on the one that was given up talks on, and nobody hears."""
    site = agent_site
    settings = replace(site.settings, node_silent_seconds=1.0, node_grace_seconds=4.0)
    with open_agent_site(site.agent) as theirs:
        async with child(theirs.root, url, site.agent) as process, contextlib.AsyncExitStack() as stack:
            await heard(process, "begun")
            thread_daemon = await stack.enter_async_context(site.daemon(settings, await Store.open(url)))
            process.send_signal(signal.SIGSTOP)
            cut = await thread_daemon.ended("m1")
            turn = await thread_daemon.talk("recall begun", "m2")
            before, thread = await thread_daemon.events(), await thread_daemon.threads.get(REF)
            assert site.sandboxes() == [thread.row.session_id]
            process.send_signal(signal.SIGCONT)
            await heard(process, "empty")
            assert await process.wait() == 0
            assert await thread_daemon.events() == before
            assert ((await thread_daemon.talk("recall begun", "m3")).row.answer or "").strip() == "yes"
            assert (site.sandboxes(), theirs.sandboxes()) == ([thread.row.session_id], [])
            await forgotten(site, thread_daemon)
    assert (cut.row.stop_reason, (cut.row.error or {})["code"], (turn.row.answer or "").strip()) == (
        "error",
        "sandbox_lost",
        "yes",
    )
    assert [event.data["how"] for event in before if event.kind == Kind.RESOLVED][:2] == [How.CREATED, How.RECREATED]


@pytest.mark.scripted_first
async def test_a_host_that_is_gone_leaves_its_snapshots_where_the_others_can_reach_them(
    agent_site: RealSite, tmp_path: Path, url: str
) -> None:
    site = agent_site
    settings = replace(site.settings, node_silent_seconds=0.5, node_grace_seconds=2.0)
    site.shared = tmp_path
    with open_agent_site(site.agent, "node_gone", tmp_path) as theirs:
        async with theirs.daemon(None, await Store.open(url)) as thread_daemon:
            await opened(thread_daemon)
            before = await sandbox_of(thread_daemon)
            await thread_daemon.sessions.snapshots.create(before, "one", idempotency_key=None, caller=ROOT)
        theirs.delete(before)
        async with site.daemon(settings, await Store.open(url)) as thread_daemon:
            found = await thread_daemon.threads.resolve(REF)
            assert (found.how, "node_gone" in str(found.why)) == (How.RECREATED, True), found
            await remembers(thread_daemon, site, file=True)
            await thread_daemon.sessions.snapshots.delete("one", caller=ROOT)
            assert list((tmp_path / "node_gone").iterdir()) == []
            await forgotten(site, thread_daemon)
    site.shared = None


@contextlib.asynccontextmanager
async def standing_still(url: str, thread_id: str) -> AsyncIterator[None]:
    """A daemon that has locked the thread's row, and then does nothing any more."""
    stopped = postgres_engine(parse_url(url), timeout=1.0)
    try:
        await (await stopped.connect()).close()  # the one of the pool that was used before
        connection = await stopped.connect()
        await connection.execute(sa.select(threads).where(threads.c.id == thread_id).with_for_update())
        yield
        with contextlib.suppress(sa.exc.DBAPIError):
            await connection.close()
    finally:
        await stopped.dispose()


async def test_a_daemon_stopped_in_a_transaction_does_not_keep_its_locks(tmp_path: Path, url: str) -> None:
    """Postgres ends a transaction in which nothing happens: who stands still cannot hold up the others for ever."""
    host = Host("node_one", tmp_path / "one", url)
    async with host.up(), host.daemon(STEADY) as thread_daemon:
        await thread_daemon.talk("say hello", "m1")
        async with standing_still(url, (await thread_daemon.threads.get(REF)).row.id):
            assert (await thread_daemon.talk("recall hello", "m2")).row.answer == "yes\n"


@pytest.mark.scripted_first
async def test_a_daemon_stopped_in_a_transaction_with_real_sandboxes(agent_site: RealSite, url: str) -> None:
    """The same: nobody notices, and there is no other sandbox."""
    site = agent_site
    async with site.daemon(store=await Store.open(url)) as thread_daemon:
        await opened(thread_daemon)
        before = await sandbox_of(thread_daemon)
        async with standing_still(url, (await thread_daemon.threads.get(REF)).row.id):
            await remembers(thread_daemon, site, file=True)
        assert await sandbox_of(thread_daemon) == before
        await forgotten(site, thread_daemon)


async def answered(thread_daemon: ThreadDaemon, thread_id: str, name: str) -> None:
    """Looked for now and then: so many who look all the time would be all that the machine does."""

    async def done() -> bool:
        return (await thread_daemon.tools.store.messages.get(thread_id, name)).status == "done"

    await until(done, f"{name} is answered", 120, every=0.2)


async def sent(thread_daemon: ThreadDaemon, name: str, ref: ThreadRef) -> None:
    """As a client does it: on a machine that is too busy, Postgres takes a transaction for one that stands still."""
    while True:
        try:
            await thread_daemon.say(f"say {name}", name, ref, Mode.COLLECT)
            return
        except Unavailable:
            await linger(0.2)


async def raced(daemons: Sequence[ThreadDaemon], ref: ThreadRef, few: asyncio.Semaphore) -> str:
    """Both are sent a message to a new thread at once; the thread's sandbox, when both messages are answered."""
    one, two = daemons
    async with few:
        await asyncio.gather(sent(one, "a", ref), sent(two, "b", ref))
        thread = await one.threads.get(ref)
        await answered(one, thread.row.id, "a")
        await answered(two, thread.row.id, "b")
        found, again = await asyncio.gather(one.threads.get(ref), two.threads.resolve(ref))
    assert found.row.session_id == again.session_id
    return again.session_id


async def destroyed(daemons: tuple[ThreadDaemon, ThreadDaemon], session_id: str, few: asyncio.Semaphore) -> None:
    """By the host that has it."""
    async with few:
        home = (await daemons[0].tools.store.sessions.get(session_id)).node
        await next(thread_daemon for thread_daemon in daemons if thread_daemon.tools.node == home).sessions.destroy(
            session_id
        )


async def test_no_thread_ever_has_two_sandboxes(tmp_path: Path, url: str) -> None:
    """TEST_RACES says how many."""
    one, two = Host("node_one", tmp_path / "one", url), Host("node_two", tmp_path / "two", url)
    done, few = 0, asyncio.Semaphore(AT_ONCE)
    async with one.up(), two.up(), one.daemon(RACING) as first, two.daemon(RACING) as second:
        daemons = (first, second)
        while done < RACES:
            refs = [ThreadRef("root", f"race:{number}") for number in range(done, min(done + ROUND, RACES))]
            owned = await asyncio.gather(*(raced(daemons, ref, few) for ref in refs))
            assert sorted(sandboxes(one, two)) == sorted(owned)
            assert len(ran(one, two)) == len(set(ran(one, two)))
            await asyncio.gather(*(destroyed(daemons, session_id, few) for session_id in owned))
            await until(lambda: not sandboxes(one, two), "all gone")
            one.agents.ran.clear()
            two.agents.ran.clear()
            done += len(refs)
            creates = [call for thread_daemon in daemons for call in thread_daemon.driver.calls if call[0] == "create"]
            assert len(creates) == done
            print(f"{done} races, {len(creates)} sandboxes made")


@pytest.mark.scripted_first
async def test_no_thread_has_two_real_sandboxes(agent_site: RealSite, url: str) -> None:
    """The same on two hosts with real ones: there are as many as threads, by the runtimes' own lists."""
    site = agent_site
    settings, few = replace(RACING, poll_seconds=0.5), asyncio.Semaphore(REAL_AT_ONCE)
    refs = [
        ThreadRef("root", f"race:{number}") for number in range(REAL_RACES if site.agent == "scripted" else FEW_RACES)
    ]
    with open_agent_site(site.agent, "node_two") as other:
        async with contextlib.AsyncExitStack() as stack:
            daemons = [
                await stack.enter_async_context(one.daemon(settings, await Store.open(url))) for one in (site, other)
            ]
            owned = await asyncio.gather(*(raced(daemons, ref, few) for ref in refs))
            assert sorted(site.sandboxes() + other.sandboxes()) == sorted(owned)
            assert await ever_made(url) == set(owned)
            for ref in refs:
                await made_once(daemons[0], ref)
                await daemons[0].threads.delete(ref)
            await asyncio.gather(only(site), only(other))


async def ever_made(url: str) -> set[str]:
    """All sandboxes, also those that were given up again before anybody could see them."""
    engine = postgres_engine(parse_url(url), timeout=30.0)
    try:
        async with engine.connect() as connection:
            return set((await connection.execute(sa.select(sessions.c.id))).scalars())
    finally:
        await engine.dispose()


async def made_once(thread_daemon: RealThreadDaemon, ref: ThreadRef) -> None:
    """Its sandbox was made once, both were answered, once, and the row has no complaint."""
    events = await thread_daemon.events(ref)
    told = [event.data["how"] for event in events if event.kind == Kind.RESOLVED]
    assert told == [How.CREATED], told
    assert sorted(text_of(events).split()) == ["a", "b"]
    assert (await thread_daemon.threads.get(ref)).row.last_error is None
