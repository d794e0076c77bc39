"""A thread on a private repository: cloned over HTTPS by the broker's token, into a sandbox without any network."""

import asyncio
from pathlib import Path

import pytest

from holdfast.errors import RepoFailed
from holdfast.sdk import Client
from holdfast.vocabulary.turn_events import Kind
from support.daemons.daemon import DaemonProcess, unusable_driver
from support.servers.git_server import GitServer, git, git_server
from support.waiting import until

pytestmark = pytest.mark.anyio

PATIENCE = 180.0
TOKEN = "ghp-QzR7thetokenofaprivateserverQzR7"


async def test_a_private_repository(tmp_path: Path) -> None:
    reason = await asyncio.to_thread(unusable_driver)
    if reason:
        pytest.skip(reason)
    (tmp_path / "token").write_text(TOKEN)
    async with git_server(tmp_path / "served", TOKEN) as server, asyncio.timeout(PATIENCE):
        bare = server.make("acme/tool.git")
        work = server.root / "work" / "acme/tool.git"
        first = git("rev-parse", "HEAD", cwd=work).strip()
        (work / "README").write_text("newer\n")
        git("commit", "-qam", "second", cwd=work)
        git("push", "-q", str(bare), "main", cwd=work)
        credentials = {"git.test": {"key": {"file": str(tmp_path / "token")}, "url": server.url}}
        daemon = DaemonProcess(git_credentials=credentials, agents=["scripted"], thread_retry_seconds=0.1)
        try:
            await asyncio.to_thread(daemon.start)
            daemon.keep_port()
            async with Client(daemon.url, daemon.key) as client:
                await _talk(client, first)
                await _crash(client, daemon, server)
        finally:
            await asyncio.to_thread(daemon.__exit__, None, None, None)
    assert server.seen and all(TOKEN not in path for _method, path, _given in server.seen)


async def _crash(client: Client, daemon: DaemonProcess, server: GitServer) -> None:
    """The daemon dies while git is at it: the next one brings the clone, and the answer, about."""
    server.gate.clear()
    before = len(server.seen)
    options = {"repo": {"url": "https://git.test/acme/tool.git"}}
    reply = await client.thread("repo:3").send("run pwd; cat README", options=options)
    await until(lambda: len(server.seen) > before, "git is at it")
    await asyncio.to_thread(daemon.kill)
    server.gate.set()
    await asyncio.to_thread(daemon.start)
    events = [event async for event in reply]
    told = [event.data.get("output") for event in events if event.kind == Kind.TOOL_UPDATE]
    assert told and told[-1] == "/workspace/tool\nnewer\n", events
    info = await client.thread("repo:3").info()
    session = await client.get_session(str(info.session_id))
    assert (await session.exec("ls -A /workspace | grep clone; true")).stdout == ""


async def _talk(client: Client, first: str) -> None:
    repo = {"url": "https://git.test/acme/tool.git", "branch": "main", "ref": first}
    thread = client.thread("repo:1")
    session_id = (await thread.resolve(options={"repo": repo, "network": "none"})).session_id
    session = await client.get_session(session_id)
    where = "cd /workspace/tool && cat README && git rev-parse --abbrev-ref HEAD && git remote get-url origin"
    told = await session.exec(where)
    assert told.stdout == "this is acme/tool.git\nmain\nhttps://git.test/acme/tool.git\n", told.output
    await session.exec("echo mine > /workspace/tool/README")
    await thread.pause(hibernate=True)
    assert (await thread.resolve()).session_id == session_id
    assert (await session.exec("cat /workspace/tool/README")).stdout == "mine\n"

    await session.destroy()
    again = await thread.resolve()
    assert again.how == "recreated" and again.session_id != session_id
    told = await (await client.get_session(again.session_id)).exec("cat /workspace/tool/README")
    assert told.stdout == "this is acme/tool.git\n"

    missing = {"url": "https://git.test/acme/none.git"}
    with pytest.raises(RepoFailed, match=r"https://git\.test/acme/none\.git could not be cloned: ") as caught:
        await client.thread("repo:2").resolve(options={"repo": missing})
    assert TOKEN not in str(caught.value)
