"""A thread's repository, with real git in a real sandbox: cloned once, whole, and never over what is there."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from holdfast.errors import RepoFailed
from holdfast.records.threads import ThreadEventRow
from holdfast.sessions.types import ExecRequest
from holdfast.sessions.use.processes import ProcessRequest
from holdfast.threads.names import ThreadRef
from holdfast.threads.resolve import repos
from holdfast.threads.types import How, Repo, ThreadOptions
from holdfast.vocabulary.turn_events import Kind
from support.daemons.daemon import unusable_driver
from support.threads.real_threads import REAL, RealSite, RealThreadDaemon, open_real_site
from support.threads.threads import REF

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SECONDS = 120.0
SEED = """
git config --global user.name t && git config --global user.email t@example.com
git init -q -b main seed && cd seed
echo one > file && git add file && git commit -qm one && git tag first
git checkout -qb side && echo two > file && git commit -qam two
git checkout -q main && echo three > file && git commit -qam three
cd .. && git clone -q --bare seed seed.git && rm -rf seed
"""
URL = "file:///workspace/seed.git"


@pytest.fixture(scope="module")
def site() -> Iterator[RealSite]:
    reason = unusable_driver()
    if reason:
        pytest.skip(f"NO REPOSITORY IS CLONED: {reason}")
    with open_real_site() as site:
        yield site


@pytest.fixture
async def daemon(site: RealSite) -> AsyncIterator[RealThreadDaemon]:
    async with site.daemon(replace(REAL, retry_seconds=0.05)) as daemon:
        yield daemon


async def sh(daemon: RealThreadDaemon, session_id: str, command: str) -> str:
    done = await daemon.sessions.exec(session_id, ExecRequest(f"cd /workspace; {command}"), idempotency_key=None)
    assert done.exit_code == 0, done.output
    return done.output.decode()


async def _events(daemon: RealThreadDaemon, text: str) -> list[ThreadEventRow]:
    turn = await daemon.talk(text)
    return [event for event in await daemon.events() if event.turn_id == turn.row.id and event.kind == Kind.TOOL_UPDATE]


async def clone(daemon: RealThreadDaemon, session_id: str, repo: Repo, seconds: float = SECONDS) -> None:
    await repos.clone(daemon.sessions.processes, session_id, repo, {}, seconds=seconds)


async def test_a_thread_gets_its_repository(daemon: RealThreadDaemon, site: RealSite) -> None:
    """The origin is in the sandbox itself, so the first try cannot find it."""
    options = ThreadOptions(repo=Repo(URL))
    with pytest.raises(RepoFailed, match=r"could not be cloned: fatal: .*/workspace/seed\.git"):
        await daemon.threads.resolve(REF, options)
    thread = await daemon.threads.get(REF)
    assert thread.row.session_id is not None
    assert thread.row.last_error is not None and thread.row.last_error.startswith("repo_failed: ")
    assert await sh(daemon, thread.row.session_id, "ls -A") == "output\n"  # nothing is left of three tries
    await sh(daemon, thread.row.session_id, SEED)
    assert (await daemon.threads.resolve(REF)).how is How.RESUMED  # its agent was never started
    assert await sh(daemon, thread.row.session_id, "cat seed/file; ls -A | grep clone || true") == "three\n"
    row = await daemon.tools.store.threads.get(thread.row.id)
    assert row.workspace == {"session_id": thread.row.session_id, "workdir": "/workspace/seed", "repo": URL}
    running = await daemon.sessions.processes.list(thread.row.session_id)
    assert not [view for view in running if "holdfast-clone" in view.cmd]

    # The agent works there. It was given once: what became of it is the user's, and no reason not to start again.
    assert "/workspace/seed" in str([event.data for event in await _events(daemon, "run pwd")])
    await sh(daemon, thread.row.session_id, "rm -r seed")
    await daemon.threads.resolve(REF)
    assert "seed\n" not in await sh(daemon, thread.row.session_id, "ls")
    await site.kill_agent(daemon, thread.row.session_id)
    await daemon.threads.resolve(REF)
    assert await sh(daemon, thread.row.session_id, "ls -A seed") == ""

    site.delete(thread.row.session_id)
    with pytest.raises(RepoFailed):  # a new sandbox is given it anew
        await daemon.threads.resolve(REF)
    assert (await daemon.threads.get(REF)).row.session_id != thread.row.session_id
    await daemon.threads.delete(REF)


async def test_cloning(daemon: RealThreadDaemon) -> None:
    ref = ThreadRef(REF.owner, "dm:clones")
    session = (await daemon.threads.resolve(ref)).session_id
    assert (await sh(daemon, session, "ls -d output/display")) == "output/display\n"
    await sh(daemon, session, SEED)

    # At a branch, a tag, and a branch that begins at a tag.
    for repo, head in [
        (Repo(URL, "side"), "two side"),
        (Repo(URL, ref="first"), "one HEAD"),
        (Repo(URL, "main", "first"), "one main"),
    ]:
        await clone(daemon, session, repo)
        told = await sh(daemon, session, "cd seed; echo $(cat file) $(git rev-parse --abbrev-ref HEAD); rm -rf ../seed")
        assert told == f"{head}\n"

    # What is there is left alone, whatever it is.
    await sh(daemon, session, "mkdir seed; echo mine > seed/file")
    await clone(daemon, session, Repo(URL))
    assert await sh(daemon, session, "cat seed/file; rm -r seed") == "mine\n"

    # What a crash has left is cleared away, and git that still runs is waited for.
    await sh(daemon, session, "mkdir .holdfast-clone.1; echo half > .holdfast-clone.1/file")
    slow = ProcessRequest(argv=["/bin/sh", "-c", "while [ ! -e go ]; do sleep 0.1; done", "holdfast-clone"])
    await daemon.sessions.processes.start(session, slow, idempotency_key=None)
    waiting = asyncio.create_task(clone(daemon, session, Repo(URL)))
    await sh(daemon, session, "sleep 0.5; ls -d .holdfast-clone.1; touch go")
    await waiting
    assert await sh(daemon, session, "cat seed/file; ls -A | grep clone || true; rm -r seed") == "three\n"

    # A commit that is not there, a host that is not there, and a clone that takes too long.
    with pytest.raises(RepoFailed, match="could not be cloned"):
        await clone(daemon, session, Repo(URL, ref="no-such-tag"))
    with pytest.raises(RepoFailed, match=r"http://127\.0\.0\.1:1/seed\.git could not be cloned: fatal: unable"):
        await clone(daemon, session, Repo("http://127.0.0.1:1/seed.git"))
    await sh(daemon, session, "mkfifo /tmp/never; git config --global core.hooksPath /tmp")
    await sh(
        daemon, session, "printf '#!/bin/sh\\ncat /tmp/never\\n' > /tmp/post-checkout; chmod +x /tmp/post-checkout"
    )
    with pytest.raises(RepoFailed, match="took longer than 2 s"):
        await clone(daemon, session, Repo(URL), seconds=2.0)
    assert not [view for view in await daemon.sessions.processes.list(session) if "holdfast-clone" in view.cmd]
    assert await sh(daemon, session, "ls -d seed || true") in (
        "",
        "ls: cannot access 'seed': No such file or directory\n",
    )
    await daemon.threads.delete(ref)
