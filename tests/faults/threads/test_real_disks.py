"""Disks that are full under a thread on real sandboxes: the database's, and that of uploads and artifacts.

As in ``test_thread_real``: what the user sees, what the row says, which sandboxes there are. That of the sandbox itself
is there.
"""

from functools import partial

import pytest

from holdfast.errors import DiskFull
from holdfast.store import Store
from holdfast.vocabulary.turn_events import Kind
from support.machine.full_disk import small_disk
from support.threads.real_threads import RealSite, forgotten, opened, remembers, said, sandbox_of, there
from support.threads.threads import REF, pieces, refusals, text_of
from support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


@pytest.mark.scripted_first
async def test_a_databases_disk_that_is_full(agent_site: RealSite) -> None:
    """New messages are refused; the turn goes on, waits for room, and all of it is told then."""
    site = agent_site
    with small_disk(site.root / "db", "16m") as disk:
        database = disk.path / "test.db"
        async with site.daemon(store=await Store.open(f"sqlite:///{database}")) as thread_daemon:
            await opened(thread_daemon)
            before = await sandbox_of(thread_daemon)
            await thread_daemon.say(
                "say one\nwait-for /workspace/go\ncount 500\nwrite /workspace/done x\nsay end", "m1"
            )
            await until(partial(said, thread_daemon, "one"), "begun")
            refused = refusals(thread_daemon)
            disk.fill_around(database)
            await thread_daemon.sessions.write_file(before, "/workspace/go", b"", mode=None)
            await until(lambda: there(thread_daemon, before, "/workspace/done"), "the agent is done")
            await until(lambda: len(refused) > 1, "what it said finds no room, also when it is tried again")
            with pytest.raises(DiskFull):
                await thread_daemon.say("say more", "m2")
            assert (await thread_daemon.threads.message(REF, "m1")).status == "in_turn"
            assert site.sandboxes() == [before]
            disk.free()
            turn = await thread_daemon.ended("m1")
            assert (turn.row.stop_reason, turn.row.attempts) == ("end_turn", 1)
            assert text_of(await thread_daemon.events(), turn.row.id).split() == ["one", *map(str, range(500)), "end"]
            await remembers(thread_daemon, site, file=True)
            assert await sandbox_of(thread_daemon) == before
            await forgotten(site, thread_daemon)


@pytest.mark.scripted_first
async def test_uploads_and_artifacts_that_find_no_room(agent_site: RealSite) -> None:
    """They are told, and do not spoil the turn; with room again, the next one's are there."""
    site = agent_site
    with small_disk(site.root / "files", "128k") as disk:
        async with site.daemon() as thread_daemon:
            await opened(thread_daemon)
            before = await sandbox_of(thread_daemon)
            disk.fill()
            with pytest.raises(DiskFull):
                await thread_daemon.threads.upload(REF, "a.bin", pieces(b"x" * 100_000))
            turn = await thread_daemon.talk("write /workspace/output/display/a.txt kelp\nsay made", "m1")
            told = [event.data["code"] for event in await thread_daemon.events() if event.kind == Kind.ERROR]
            assert (turn.row.stop_reason, (turn.row.answer or "").strip(), list(turn.artifacts)) == (
                "end_turn",
                "made",
                [],
            )
            assert told == ["disk_full"]
            assert (await thread_daemon.threads.get(REF)).row.last_error is None
            disk.free()
            assert (await thread_daemon.threads.upload(REF, "a.bin", pieces(b"x" * 1000))).size == 1000
            again = await thread_daemon.talk("write /workspace/output/display/b.txt kelp", "m2")
            assert "b.txt" in [artifact.name for artifact in again.artifacts]
            await remembers(thread_daemon, site, file=True)
            assert await sandbox_of(thread_daemon) == before
            await forgotten(site, thread_daemon)
