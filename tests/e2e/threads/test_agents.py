"""Real agents behind a real daemon: it is killed in the middle of a turn, and nothing in the sandbox knows a secret."""

import asyncio
import base64
import contextlib
import os
import secrets
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from holdfast.agents.known import KNOWN
from holdfast.errors import ThreadNotFound
from holdfast.sdk import Client, Reply, Thread
from holdfast.store.usage import CUT
from holdfast.vocabulary.turn_events import Kind
from support.agents.installed import need_agent
from support.daemons.daemon import DaemonProcess, unusable_driver
from support.machine.machine import containers, init_pid, is_calling, processes_of
from support.secrets import ENVIRONMENTS, FILES, finding, found, those_in_memory
from support.servers.git_server import GitServer, git_server
from support.servers.model_server import Cut, ModelServer, Stalled, Status, Torn, model_server
from support.waiting import until, wait_for

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

PATIENCE = 150.0
AGENTS = ("pi", "opencode", "sandbox-agent", "opencode-acp", "codex", "pi-acp", "claude", "gemini")
GO = "/workspace/go"
MADE = "/workspace/made"
HALF = "all before halfway"
WHOLE = f"{HALF} and all behind"
SPEECH = f"say {WHOLE}"
ALWAYS = ("pi", "opencode", "sandbox-agent", "claude")
"""Each is told of the cut in another way; the others are like one of them, and tried with ``TEST_WHOLE_SUITE=1``."""
LONG = f"no title is long enough for all of these many words and so none has {WHOLE}"
QUICK = ("opencode", "sandbox-agent", "codex", "pi-acp")
"""Of those that ask again by themselves; pi has a test of its own."""
GIT_HOST = "git.example.com"
HEADS = "/workspace/heads"
USED = f"run git ls-remote https://{GIT_HOST}/acme/tool.git > {HEADS}"
TURN = f"say first part\nrun expr 6000 + 60 > {MADE}\n{USED}\nwait-for {GO}\nsay last part"


@dataclass(frozen=True)
class Lab:
    daemon: DaemonProcess
    models: ModelServer
    key: str
    git: GitServer

    @property
    def secrets(self) -> set[str]:
        """What must never be in a sandbox: a provider's key, the token for git, the daemon's own key."""
        return {self.key, self.git.token, self.daemon.key}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A daemon whose only models are a server of ours, which wants a key that nobody else knows."""
    if reason := unusable_driver():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("keys")
    key, token = _secret(folder / "key", "sk-"), _secret(folder / "token", "ghp_")
    repositories = git_server(tmp_path_factory.mktemp("git"), token)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(model_server()) as models,
        portal.wrap_async_context_manager(repositories) as git,
    ):
        git.make("acme/tool.git")
        settings = {
            "providers": _providers(models.url, folder / "key"),
            "git_credentials": {GIT_HOST: {"url": git.url, "key": {"file": str(folder / "token")}}},
            "agents": list(AGENTS),
        }
        with DaemonProcess(**settings, default_agent="pi", max_sessions=20) as daemon:
            daemon.keep_port()
            yield Lab(daemon, models, key, git)


def _secret(file: Path, prefix: str) -> str:
    secret = f"{prefix}{secrets.token_hex(20)}"
    file.write_text(secret)
    file.chmod(0o600)
    return secret


def _providers(url: str, key_file: Path) -> dict[str, object]:
    base = f"{url}/llm/lab"
    urls = {"openai": f"{base}/v1", "anthropic": base, "gemini": base}
    priced = [{"name": "demo-1", "price": {"input": 1.0, "output": 2.0}}]
    key = {"file": str(key_file)}
    made: dict[str, object] = {
        f"lab-{kind}": {"kind": kind, "base_url": where, "key": key, "models": priced} for kind, where in urls.items()
    }
    spare = {"kind": "openai", "base_url": f"{url}/llm/spare/v1", "key": key, "models": priced}
    return {**made, "spare": spare}


async def test_a_models_answer_that_breaks_off(lab: Lab) -> None:
    """The agent asks again, and what it says is told whole and once. Cut each time, the turn ends and says why."""
    need_agent(str(KNOWN["pi"].program))
    words = "one two three four five six"
    async with Client(lab.daemon.url, lab.daemon.key) as client, asyncio.timeout(PATIENCE):
        thread = client.thread("lab:cut")
        lab.models.break_("lab", Cut(6), times=1)
        again = await thread.send(f"say {words}", options={"agent": "pi"}).result()
        assert (again.reason, again.text.strip()) == ("end_turn", words), again
        told = [event.data async for event in thread.events(follow=False) if event.kind == Kind.ERROR]
        assert [data["code"] for data in told] == ["model_retried"] and "broke off" in told[0]["message"], told
        before = (await thread.info()).session_id
        lab.models.break_("lab", Cut(6))
        try:
            cut = await thread.send(f"say {words}").result()
        finally:
            lab.models.mend("lab")
        assert cut.reason == "error" and "broke off" in (cut.error or {})["message"], cut
        assert cut.text.split() == ["one", "two"]
        assert (await thread.send("say still here").result()).text.split() == ["still", "here"]
        row = await thread.info()
        assert (row.session_id, row.last_error) == (before, None)
        only = "there is no other sandbox"
        await asyncio.to_thread(wait_for, lambda: containers(lab.daemon) == [before], only)
        await thread.delete()


@pytest.fixture(scope="module", params=AGENTS)
def agent(lab: Lab, request: pytest.FixtureRequest) -> Iterator[str]:
    """With a thread of its own, ``lab:<agent>``, for all tests of this agent: it takes long to start."""
    name = str(request.param)
    need_agent(str(KNOWN[name].program))
    yield name
    asyncio.run(_delete_thread(lab, f"lab:{name}"))


async def _delete_thread(lab: Lab, key: str) -> None:
    async with Client(lab.daemon.url, lab.daemon.key) as client:
        with contextlib.suppress(ThreadNotFound):  # of tests that were left out
            await client.thread(key).delete()


async def test_the_daemon_is_killed_in_the_middle_of_a_turn(lab: Lab, agent: str) -> None:
    async with Client(lab.daemon.url, lab.daemon.key) as client, asyncio.timeout(PATIENCE):
        thread = client.thread(f"lab:{agent}")
        await thread.send(TURN, id="m1", options={"agent": agent})
        await _until_it_waits(client, thread)
        await asyncio.to_thread(lab.daemon.kill)
        await asyncio.to_thread(lab.daemon.start)
        session = await client.get_session(str((await thread.info()).session_id))
        await _nothing_knows_a_secret(lab, client, session.id)
        await session.write(GO, b"")
        result = await thread.send(TURN, id="m1").result()  # the same message: what became of it
        assert (result.reason, result.error) == ("end_turn", None), lab.daemon.tail()
        assert (result.text.count("first part"), result.text.count("last part")) == (1, 1), result.text
        events = [event async for event in thread.events(follow=False)]
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert [event.kind for event in events].count(Kind.FINALIZE) == 1
        assert await session.read(MADE) == b"6060\n"
        usage = events[-1].data["usage"]
        assert usage["calls"] >= 2 and usage["cost_usd"] > 0, usage
        assert b"refs/heads/main" in await session.read(HEADS)


async def test_the_daemon_is_killed_while_the_model_speaks(lab: Lab, agent: str) -> None:
    """The half that was said passes for no answer: the model is asked again, and the whole is told once."""
    if agent not in ALWAYS and not os.environ.get("TEST_WHOLE_SUITE"):
        pytest.skip("one of each kind is enough; all with TEST_WHOLE_SUITE=1")
    async with Client(lab.daemon.url, lab.daemon.key) as client, asyncio.timeout(PATIENCE):
        thread = client.thread(f"lab:{agent}")
        lab.models.break_("lab", Stalled("halfway"))
        try:
            await _until_said(thread.send(SPEECH, id="m2", options={"agent": agent}), "halfway")
            await asyncio.to_thread(lab.daemon.kill)
        finally:
            lab.models.mend("lab")
        before = await asyncio.to_thread(_cut_bills, lab)
        await asyncio.to_thread(lab.daemon.start)

        async def is_billed() -> bool:
            """The call that was cut is paid for, and so it is in the books."""
            return await asyncio.to_thread(_cut_bills, lab) > before

        await until(is_billed, "the call that was cut is in the books", every=0.1)
        result = await thread.send(SPEECH, id="m2").result()
        assert (result.reason, result.error) == ("end_turn", None), lab.daemon.tail()
        assert result.text.strip() == WHOLE
        events = [event async for event in thread.events(follow=False) if event.turn_id == result.turn_id]
        assert [event.kind for event in events].count(Kind.FINALIZE) == 1
        discarded = {part for event in events for part in event.data.get("discards", ())}
        assert "".join(event.text for event in events if event.data.get("part_id") in discarded).strip() == HALF


async def test_an_agent_asks_its_model_while_the_daemon_is_away(lab: Lab, agent: str) -> None:
    """It is answered by the next one. The tool that it waits for ends meanwhile, by a file from outside."""
    _only_in_the_long_run(agent, "pi")
    before, after = f"/workspace/before-{agent}", f"/workspace/after-{agent}"
    script = f"say hello\nrun touch {before}; until [ -e {after} ]; do sleep 0.1; done\nsay good bye"
    async with Client(lab.daemon.url, lab.daemon.key) as client, asyncio.timeout(PATIENCE):
        thread = client.thread(f"lab:{agent}")
        await thread.send(script, id="away", options={"agent": agent})
        disk = await _disk_of(lab, thread)
        await until((disk / before[1:]).exists, "the tool runs", PATIENCE, every=0.05)
        inside = Path(f"/proc/{await asyncio.to_thread(init_pid, lab.daemon, disk.parent.name)}")
        await asyncio.to_thread(lab.daemon.kill)
        try:
            (disk / after[1:]).touch()
            await until(lambda: is_calling(inside), "the model is asked", every=0.05)
        finally:
            await asyncio.to_thread(lab.daemon.start)
        result = await thread.send(script, id="away").result()
        assert (result.reason, result.error) == ("end_turn", None), lab.daemon.tail()
        assert result.text.split() == ["hello", "good", "bye"], result.text


async def _disk_of(lab: Lab, thread: Thread) -> Path:
    """Where its sandbox has its files, seen from outside."""
    found: list[str] = []

    async def has_one() -> bool:
        found.extend(name for name in [(await thread.info()).session_id] if name)
        return bool(found)

    await until(has_one, "it has a sandbox", PATIENCE, every=0.05)
    return lab.daemon.state_dir / "oci" / found[-1] / "disk"


async def test_another_model_answers_when_an_agents_first_cannot(lab: Lab, agent: str) -> None:
    """The agent is asked nothing, and told nothing: the thread's next choice answers."""
    _only_in_the_long_run(agent)
    script = f"say first part\nrun echo {agent} > /workspace/switched\nsay last part"
    async with Client(lab.daemon.url, lab.daemon.key) as client, asyncio.timeout(PATIENCE):
        thread = client.thread(f"lab:{agent}:switch")
        lab.models.break_("lab", Status(529))
        try:
            first = {"claude": "lab-anthropic/demo-1", "gemini": "lab-gemini/demo-1"}.get(agent, "lab-openai/demo-1")
            options = {"agent": agent, "model": first, "model_preferences": ["spare/demo-1"]}
            result = await thread.send(script, options=options).result()
        finally:
            lab.models.mend("lab")
        assert (result.reason, result.error) == ("end_turn", None), lab.daemon.tail()
        assert (result.text.count("first part"), result.text.count("last part")) == (1, 1), result.text
        session = await client.get_session(str((await thread.info()).session_id))
        assert await session.read("/workspace/switched") == f"{agent}\n".encode()
        switched = [event.data["to"] async for event in thread.events(follow=False) if event.kind == "model-switched"]
        assert switched and set(switched) == {"spare/demo-1"}, switched
        await thread.delete()


def _only_in_the_long_run(agent: str, *but: str) -> None:
    if agent not in but and not os.environ.get("TEST_WHOLE_SUITE"):
        pytest.skip("one is enough; all with TEST_WHOLE_SUITE=1")


async def test_a_models_answer_that_breaks_off_is_asked_for_again(lab: Lab, agent: str) -> None:
    """Most do so without a word: the half is taken back all the same. Broken each time, it passes for no answer."""
    if agent not in QUICK and not os.environ.get("TEST_WHOLE_SUITE"):
        pytest.skip("one of each kind is enough; all with TEST_WHOLE_SUITE=1")
    async with Client(lab.daemon.url, lab.daemon.key) as client, asyncio.timeout(PATIENCE):
        thread = client.thread(f"lab:{agent}")
        try:
            lab.models.break_("lab", Torn("halfway"))
            whole = await thread.send(f"say {LONG}", options={"agent": agent}).result()
            assert (whole.reason, whole.text.strip()) == ("end_turn", LONG), whole
            if agent not in ("codex", "pi-acp", "gemini"):  # others are slow to give up
                return
            lab.models.mend("lab")
            lab.models.break_("lab", Torn("halfway", 99))
            half = await thread.send(f"say {LONG}").result()
            assert (half.reason, half.text.strip()) == ("error", LONG.removesuffix(" and all behind")), half
            assert half.error and "broke" in half.error["message"], half
        finally:
            lab.models.mend("lab")


def _cut_bills(lab: Lab) -> int:
    """How many calls have cost something and were cut by a kill."""
    path = lab.daemon.state_dir / "holdfast.db"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        found = database.execute("SELECT count(*) FROM usage WHERE error = ? AND cost_usd > 0", (CUT,))
        return int(found.fetchone()[0])


async def _until_said(reply: Reply, word: str) -> None:
    async for event in reply:
        assert event.kind != Kind.FINALIZE, event
        if word in event.text:
            return


async def _until_it_waits(client: Client, thread: Thread) -> None:
    """The tool that waits is running, and the model is not being asked. Some tell that only when it takes long."""
    async for event in thread.events():
        assert event.kind != Kind.FINALIZE, event
        if event.kind == Kind.TOOL_UPDATE and GO in str(event.data):
            break
    session = await client.get_session(str((await thread.info()).session_id))

    async def waits() -> bool:
        return (await session.exec(f"pgrep -f 'e {GO[:-1]}[{GO[-1]}] '")).ok

    await until(waits, "the tool runs", every=0.05)


async def _nothing_knows_a_secret(lab: Lab, client: Client, session_id: str) -> None:
    """All were used, in the turn that is running; and none is in a file, an environment or the memory of a process of
    the sandbox, where another word, which was put there, is found."""
    assert {seen.key for seen in lab.models.seen} == {lab.key}
    assert lab.git.seen and all(_token(given) == lab.git.token for _method, _path, given in lab.git.seen)
    session, planted = await client.get_session(session_id), f"mark-{secrets.token_hex(8)}"
    await session.processes.start(cmd=f"export MARK={planted}; echo $MARK > /workspace/mark; exec sleep 1000")

    async def is_planted() -> bool:
        return (await session.exec("test -s /workspace/mark")).ok

    await until(is_planted, "it is there", every=0.05)
    wanted = {planted, *lab.secrets}
    for place in (FILES, ENVIRONMENTS):
        done = await session.exec(finding(place, wanted), timeout_ms=60_000)
        assert found(done.stdout) == {planted}, place
    pids = await asyncio.to_thread(processes_of, lab.daemon, session_id)
    assert await asyncio.to_thread(those_in_memory, pids, wanted) == {planted}


def _token(authorization: str) -> str:
    return base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")[2]
