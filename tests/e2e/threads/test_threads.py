"""Threads on a real daemon with real sandboxes and the scripted agent in them, through API and SDK."""

import asyncio
import contextlib
import hashlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx2
import pytest

from holdfast.errors import BadInput, Forbidden, IdempotencyMismatch, NotFound, ThreadNotFound, TurnNotFound
from holdfast.sdk import Client, SyncClient, ThreadEvent
from holdfast.vocabulary.turn_events import Kind
from support.api import body, code
from support.daemons.daemon import DaemonProcess, unusable_driver

pytestmark = pytest.mark.anyio

PATIENCE = 90.0


@pytest.fixture(scope="module")
def talking() -> Iterator[DaemonProcess]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    with DaemonProcess(max_sessions=100) as process:
        yield process


@pytest.fixture
def mortal(talking: DaemonProcess) -> Iterator[DaemonProcess]:
    """One that may be killed, and comes back where it was."""
    with DaemonProcess() as process:
        process.keep_port()
        yield process


@pytest.fixture
async def client(talking: DaemonProcess) -> AsyncIterator[Client]:
    async with Client(talking.url, talking.key) as client, asyncio.timeout(PATIENCE):
        yield client


def said(events: list[ThreadEvent]) -> str:
    return "".join(event.text for event in events)


async def test_a_conversation(client: Client) -> None:
    thread = client.thread("slack:T1:C1:1700000000.1")
    with pytest.raises(ThreadNotFound):
        await thread.info()
    events = [event async for event in thread.send("hello there", id="m1", author="ann")]
    assert events[0].kind == Kind.MESSAGE_CREATE
    assert (events[0].data["text"], events[0].data["author"]) == ("hello there", "ann")
    assert events[-1].kind == Kind.FINALIZE
    assert said(events) == "you said: hello there (I remember 0 messages)\n"
    again = await thread.send("hello there", id="m1", author="ann").result()  # what became of it; it is not run again
    assert (again.text, again.reason, again.ok) == (said(events), "end_turn", True)
    with pytest.raises(IdempotencyMismatch):
        await thread.send("something else", id="m1")
    second = await thread.send("run echo kept > /workspace/note; pwd\nhistory").result()
    assert "2" in second.text
    lines = await thread.transcript()
    assert [line.role for line in lines] == ["user", "agent", "user", "agent"]
    assert [message.status for message in await thread.messages()] == ["done", "done"]
    info = await thread.info()
    assert (info.platform, info.sleep_state, info.agent) == ("slack", "awake", "scripted")
    assert info.session_id is not None
    session = await client.get_session(info.session_id)
    assert (await session.exec("cat /workspace/note")).stdout == "kept\n"
    kept = [event async for event in thread.events(follow=False)]
    assert [event.seq for event in kept] == list(range(1, info.last_seq + 1))
    assert await client.list_threads("slack:T1") == [info]
    assert await client.list_threads("slack:T2") == []
    await thread.delete()
    await thread.delete()
    with pytest.raises(ThreadNotFound):
        await thread.info()


async def test_pause_and_resolve(client: Client) -> None:
    thread = client.thread("dm:sleepy")
    first = await thread.resolve()
    assert first.how == "created"
    assert (await thread.resolve()).how == "reused"
    assert (await thread.pause(hibernate=True)).sleep_state == "hibernated"
    resumed = await thread.resolve()
    assert (resumed.how, resumed.session_id) == ("resumed", first.session_id)
    await (await client.get_session(first.session_id)).destroy()
    result = await thread.send("say back again").result()
    assert result.text == "back again\n"
    kinds = {event.kind: event.data async for event in thread.events(follow=False)}
    assert kinds[Kind.RESOLVED]["how"] == "recreated"


async def test_files_in_and_out(client: Client, tmp_path: Path) -> None:
    thread = client.thread("files:1")
    source = tmp_path / "in put.bin"
    source.write_bytes(os.urandom(5_000_000))
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    script = (
        "attachments\n"
        "run mkdir -p /workspace/output/display && cp /workspace/uploads/*/*.bin /workspace/output/display/out.bin"
    )
    result = await thread.send(script, files=[source, ("note.txt", b"text")]).result()
    assert "in put.bin" in result.text and "note.txt" in result.text
    (artifact,) = result.artifacts
    assert (artifact.name, artifact.size, artifact.sha256) == ("out.bin", 5_000_000, digest)
    assert await thread.download(artifact, tmp_path / "back") == 5_000_000
    assert hashlib.sha256((tmp_path / "back").read_bytes()).hexdigest() == digest
    assert sorted(file.name for file in await thread.files()) == ["in put.bin", "note.txt", "out.bin"]
    with pytest.raises(NotFound):
        await thread.read("fil_none")
    with pytest.raises(BadInput):
        await thread.upload(("a/b", b"x"))
    with pytest.raises(NotFound):
        await thread.send("x", files=[artifact])  # what the agent made is no upload


async def test_questions_aborts_and_modes(client: Client) -> None:
    thread = client.thread("asks:1")
    seen: list[ThreadEvent] = []
    async for event in thread.send("ask Which one? | left | right\nsay done"):
        seen.append(event)
        if event.kind == Kind.QUESTION:
            await thread.answer(event.data["question_id"], "right")
    assert "right" in said(seen)
    with pytest.raises(NotFound):
        await thread.answer("never-asked", "x")
    running = thread.send("say begun\nwait-for /workspace/never")
    waiting = await thread.send("say too late")
    async for event in running:
        if event.text:
            assert await running.abort() is not None
    assert (await running.result()).reason == "canceled"
    assert (await waiting.result()).text == "too late\n"
    blocked = thread.send("say begun\nwait-for /workspace/never")
    async for event in blocked:
        if event.text:
            doomed = await thread.send("say never")
            await thread.abort(queued=True)
    canceled = await doomed.result()
    assert (canceled.reason, canceled.turn_id) == ("canceled", None)
    with pytest.raises(TurnNotFound):
        await thread.turn("trn_none")
    reverted = await thread.revert()
    assert reverted.reverted


def words(events: list[ThreadEvent]) -> list[str]:
    """All that was said; deltas that come together are one event."""
    return "".join(event.text or "" for event in events).split()


async def test_a_follower_sees_each_delta_once_though_the_daemon_is_killed(mortal: DaemonProcess) -> None:
    async with Client(mortal.url, mortal.key) as client, asyncio.timeout(PATIENCE):
        thread = client.thread("survivor")
        session_id = (await thread.resolve()).session_id
        events: list[ThreadEvent] = []
        deaths = 0
        reply = thread.send("count 20\nwait-for /workspace/go\ncount 20")
        async for event in reply:
            events.append(event)
            if deaths == 0 and len(words(events)) == 20:
                deaths += 1
                await asyncio.to_thread(mortal.restart)
                await (await client.get_session(session_id)).exec("touch /workspace/go")
        numbers = [event.seq for event in events]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        said = words(events)
        assert (deaths, len(said)) == (1, 40), said
        assert said[:20] == said[20:]
        result = await reply.result()
        assert (result.text.split(), result.reason) == (said, "end_turn")


async def test_a_hundred_followers_see_the_same(client: Client) -> None:
    thread = client.thread("crowd")
    await thread.send("say first").result()
    start = (await thread.info()).last_seq
    standing: asyncio.Queue[int] = asyncio.Queue()

    async def follow() -> list[int]:
        numbers = []
        async with contextlib.aclosing(thread.events(0)) as events:
            async for event in events:
                numbers.append(event.seq)
                if event.seq == start:
                    standing.put_nowait(1)
                if event.kind == Kind.FINALIZE and event.seq > start:
                    return numbers
        raise AssertionError("it ended")

    followers = [asyncio.create_task(follow()) for _ in range(100)]
    for _ in followers:
        await standing.get()
    await thread.send("count 30").result()
    last = (await thread.info()).last_seq
    assert await asyncio.gather(*followers) == [list(range(1, last + 1))] * 100


async def test_a_stream_goes_on_after_the_last_event_id(client: Client, talking: DaemonProcess) -> None:
    thread = client.thread("resumed")
    await thread.send("count 3").result()
    headers = {"Authorization": f"Bearer {talking.key}", "Last-Event-ID": "2"}
    url = f"{talking.url}/v1/threads/resumed/events/stream"
    async with aiohttp.ClientSession(headers=headers) as http, http.get(url) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = [await reply.content.readline() for _ in range(3)]
    assert lines[:2] == [b"event: thread\n", b"id: 3\n"]
    assert json.loads(lines[2].removeprefix(b"data: "))["seq"] == 3


async def test_a_websocket(talking: DaemonProcess) -> None:
    headers = {"Authorization": f"Bearer {talking.key}"}
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession(headers=headers) as http:
        async with http.ws_connect(f"{talking.url}/v1/threads/socket:1/ws") as socket:
            for wrong in ("no json", "{}", '{"send": {"id": "x"}}', '{"abort": {}, "answer": {}}'):
                await socket.send_str(wrong)
                assert (await socket.receive_json())["error"]["code"] == "bad_input"
            await socket.send_json({"abort": {}, "ref": 7})
            refused = await socket.receive_json()
            assert (refused["error"]["code"], refused["ref"]) == ("thread_not_found", 7)
            await socket.send_json({"send": {"id": "m1", "text": "ask Well? | yes | no\nsay fine"}, "ref": "a"})
            events: list[dict[str, Any]] = []
            others: list[dict[str, Any]] = []
            while not events or events[-1]["kind"] != Kind.FINALIZE:
                told = await socket.receive_json()
                if "event" not in told:
                    others.append(told)
                    continue
                events.append(told["event"])
                if events[-1]["kind"] == Kind.QUESTION:
                    answer = {"question_id": events[-1]["data"]["question_id"], "answer": "yes"}
                    await socket.send_json({"answer": answer, "ref": "b"})
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert {one["ref"]: next(iter(one)) for one in others} == {"a": "sent", "b": "answered"}
        async with http.ws_connect(f"{talking.url}/v1/threads/socket:1/ws", params={"after": "3"}) as socket:
            assert (await socket.receive_json())["event"]["seq"] == 4
        async with http.ws_connect(f"{talking.url}/v1/threads/socket:1/ws", params={"after": "999"}) as socket:
            assert (await socket.receive_json())["error"]["code"] == "bad_input"


async def test_keys_see_only_their_own_threads(client: Client, talking: DaemonProcess) -> None:
    ann, bob = [(await client.keys.add(name, "use")).key for name in ("ann", "bob")]
    looker = (await client.keys.add("looker", "read", owner="ann")).key
    async with Client(talking.url, ann) as hers, Client(talking.url, bob) as his, Client(talking.url, looker) as looks:
        assert (await hers.thread("shared").send("say hers").result()).text == "hers\n"
        assert [one.owner for one in await hers.list_threads()] == ["ann"]
        assert await his.list_threads() == []
        with pytest.raises(Forbidden):
            await his.list_threads(owner="ann")
        with pytest.raises(ThreadNotFound):
            await his.thread("shared").info()
        with pytest.raises(ThreadNotFound):
            await his.thread("shared", owner="ann").info()
        assert (await his.thread("shared").send("recall hers").result()).text == "no\n"
        assert [line.text for line in await looks.thread("shared").transcript()] == ["say hers", "hers\n"]
        with talking.client() as http:
            refused = http.post(
                "/v1/threads/shared/messages",
                json={"id": "x", "text": "x"},
                headers={"Authorization": f"Bearer {looker}"},
            )
            assert code(refused, 403) == "forbidden"
        assert (await client.thread("shared", owner="ann").info()).owner == "ann"
        assert {one.owner for one in await client.list_threads("shared")} == {"ann", "bob"}


def test_what_is_wrong_is_said(talking: DaemonProcess) -> None:
    with talking.client() as http:
        path = "/v1/threads/wrong/messages"
        wrongs: list[Any] = [
            {},
            {"id": "a b", "text": "x"},
            {"id": "a/b", "text": "x"},
            {"id": "a", "text": "x", "mode": "shout"},
            {"id": "a", "text": "x", "channel": "a b"},
            {"id": "a", "text": "x\0"},
            {"id": "a", "text": "x", "other": 1},
            {"id": "a", "text": "x", "options": {"agent": "nobody"}},
        ]
        for wrong in wrongs:
            assert code(http.post(path, json=wrong), 422) == "bad_input", wrong
        assert code(http.get("/v1/threads/%20"), 422) == "bad_input"
        assert code(http.get("/v1/threads/wrong"), 404) == "thread_not_found"
        sent = body(http.post(path, json={"id": "a", "text": "say x"}, params={"wait": "60"}), 202)
        assert (sent["turn"]["state"], sent["turn"]["answer"]) == ("ended", "x\n")
        assert code(http.get("/v1/threads/wrong/events", params={"after": "1000"}), 422) == "bad_input"
        assert code(http.get("/v1/threads/wrong/events/stream", params={"after": "1000"}), 422) == "bad_input"
        assert code(http.get("/v1/threads/wrong/messages/none"), 404) == "not_found"
        refused = http.get("/v1/threads/wrong/events/stream", headers={"Last-Event-ID": "x"})
        assert code(refused, 422) == "bad_input"


def test_ranges_of_an_artifact(talking: DaemonProcess) -> None:
    with talking.client() as http:
        file = body(http.post("/v1/threads/ranges/files", params={"name": "x.txt"}, content=b"0123456789"), 201)
        path = f"/v1/threads/ranges/artifacts/{file['id']}"
        whole = http.get(path)
        assert (whole.content, whole.headers["content-length"]) == (b"0123456789", "10")
        assert 'filename="x.txt"' in whole.headers["content-disposition"]
        part = http.get(path, headers={"Range": "bytes=2-4"})
        assert (part.status_code, part.content) == (206, b"234")
        assert http.get(path, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
        assert code(http.get(path, headers={"Range": "bytes=99-"}), 416) == "bad_range"
        assert http.head(path).headers["content-length"] == "10"


def test_the_same_without_async(talking: DaemonProcess, tmp_path: Path) -> None:
    with SyncClient(talking.url, talking.key) as client:
        thread = client.thread("sync:1")
        events = list(thread.send("say one two"))
        assert said(events) == "one two\n"
        reply = thread.send("write /workspace/output/display/a.txt made").sent()
        result = reply.result()
        assert [file.name for file in result.artifacts] == ["a.txt"]
        assert thread.read(result.artifacts[0]) == b"made"
        assert [event.seq for event in thread.events(follow=False)][:2] == [1, 2]
        assert [info.key for info in client.list_threads("sync:")] == ["sync:1"]
        thread.delete()


def test_no_key_no_thread(talking: DaemonProcess) -> None:
    reply = httpx2.get(f"{talking.url}/v1/threads/x", trust_env=False)
    assert code(reply, 401) == "unauthorized"
