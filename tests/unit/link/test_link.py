"""The host's end of a link: who is let in, who replaces whom, and which calls survive a cut."""

import asyncio
import contextlib
import os
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
import structlog

from holdfast.errors import ExecNotFound, HoldfastError, ProtocolError, SandboxLost, SessionGone, Unavailable
from holdfast.link import connection as connections
from holdfast.link.hub import MAX_CALLED, MAX_CONNECTIONS, LinkHub
from holdfast.link.link import Link
from holdfast.protocol import frames
from holdfast.protocol.messages import VERSION
from support.waiting import linger, until

pytestmark = pytest.mark.anyio

TOKEN = "the-token"
SESSION = "ses_test"
HELLO: frames.Header = {"op": "hello", "v": VERSION, "session": SESSION, "token": TOKEN, "home": "/home"}


class Caller:
    """Somebody on the other end, who may be a runner or anything else."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._decoder = frames.Decoder()
        self._frames: list[frames.Frame] = []

    def say(self, header: frames.Header, body: bytes = b"") -> None:
        self.writer.write(frames.encode(header, body))

    async def hear(self) -> frames.Frame | None:
        """The next frame; None if the other end has hung up."""
        async with asyncio.timeout(30):
            while not self._frames:
                data = await self.reader.read(65536)
                if not data:
                    return None
                self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    async def hear_op(self) -> object:
        frame = await self.hear()
        return None if frame is None else frame[0].get("op")


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[LinkHub]:
    hub = LinkHub(tmp_path / ("long-" * 30))  # a socket's path may have 107 bytes; a directory's more
    yield hub
    await hub.shut_down()


@pytest.fixture
async def link(hub: LinkHub) -> Link:
    return await hub.listen(SESSION, TOKEN)


@contextlib.asynccontextmanager
async def dialled(hub: LinkHub) -> AsyncIterator[Caller]:
    directory = os.open(hub.directory(SESSION), os.O_PATH | os.O_DIRECTORY)
    try:
        reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/host.sock")
    finally:
        os.close(directory)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def runner(hub: LinkHub) -> AsyncIterator[Caller]:
    async with dialled(hub) as caller:
        caller.say(HELLO)
        assert await caller.hear() == ({"op": "welcome", "v": VERSION}, b"")
        yield caller


async def test_a_runner_is_welcome(hub: LinkHub, link: Link) -> None:
    assert not link.connected
    async with runner(hub):
        await link.wait_connected(5)
        assert link.connected and link.home == "/home"


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        ({**HELLO, "token": "wrong"}, "token"),
        ({**HELLO, "token": TOKEN + "x"}, "token"),
        ({**HELLO, "token": ""}, "token"),
        ({**HELLO, "token": None}, "token"),
        ({**HELLO, "token": [TOKEN]}, "token"),
        ({**HELLO, "token": "\ud800"}, "token"),
        ({"op": "hello"}, "token"),
        ({**HELLO, "v": VERSION + 1}, "version"),
        ({**HELLO, "v": None}, "version"),
        ({**HELLO, "op": "goodbye"}, "first frame"),
        ({**HELLO, "op": None}, "first frame"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else None,
)
async def test_who_is_refused(hub: LinkHub, link: Link, hello: frames.Header, why: str) -> None:
    """Told why, and hung up on."""
    async with dialled(hub) as caller:
        caller.say(hello)
        frame = await caller.hear()
        assert frame is not None and frame[0]["op"] == "refused"
        assert why in str(frame[0]["message"]) and TOKEN not in str(frame[0]["message"])
        assert await caller.hear() is None
    assert not link.connected


async def test_a_runner_in_a_copy_is_told_who_it_is(hub: LinkHub, link: Link) -> None:
    former: frames.Header = {**HELLO, "session": "ses_original", "token": "of-the-original"}
    async with dialled(hub) as refused:
        refused.say(former)
        assert await refused.hear_op() == "refused"
    link.former_token = "of-the-original"
    async with dialled(hub) as somebody:
        somebody.say(former)
        frame = await somebody.hear()
        assert frame is not None
        assert frame[0] == {"op": "welcome", "v": VERSION, "session": SESSION, "token": TOKEN}
        await until(lambda: link.connected, "the link is up")
    async with dialled(hub) as somebody:
        somebody.say(HELLO)
        assert await somebody.hear() == ({"op": "welcome", "v": VERSION}, b"")


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, bytes(8), b"\0\0\0\x02\0\0\0\0[]"])
async def test_garbage_is_hung_up_on(hub: LinkHub, link: Link, garbage: bytes) -> None:
    async with dialled(hub) as caller:
        caller.writer.write(garbage)
        assert await caller.hear() is None
    assert not link.connected


async def test_too_much_before_hello_is_hung_up_on(hub: LinkHub, link: Link) -> None:
    async with dialled(hub) as caller:
        packed = frames.encode(HELLO, bytes(1 << 20))
        caller.writer.write(packed[: connections.HELLO_BYTES + 1000])
        assert await caller.hear() is None
    assert not link.connected


async def test_silence_is_hung_up_on(hub: LinkHub, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HELLO_SECONDS", 0.05)
    async with dialled(hub) as silent:
        assert await silent.hear() is None
    async with runner(hub) as alive:
        await linger(0.15)  # longer than it may be silent before
        assert link.connected, "who has said hello may be silent"
        alive.say({"op": "unknown"})


async def test_the_newest_replaces_the_older(hub: LinkHub, link: Link) -> None:
    """The older is told so; its call goes to the newer one; what it still says is not believed."""
    async with runner(hub) as older:
        call = asyncio.create_task(link.call("ping", {}, timeout=10))
        asked = await older.hear()
        assert asked is not None and asked[0]["op"] == "ping"
        async with runner(hub) as newer:
            assert await older.hear_op() == "replaced"
            assert await older.hear() is None
            again = await newer.hear()
            assert again is not None and again[0]["op"] == "ping"
            assert not call.done()
            newer.say({"id": again[0]["id"], "who": "newer"})
            assert (await call)[0]["who"] == "newer"
            assert link.connected


async def test_a_call_outlives_a_cut(hub: LinkHub, link: Link) -> None:
    async with runner(hub) as first:
        call = asyncio.create_task(link.call("exec", {"exec_id": "e"}, b"body", timeout=10))
        assert await first.hear_op() == "exec"
    async with runner(hub) as second:
        asked = await second.hear()
        assert asked is not None and asked[1] == b"body"
        assert asked[0]["exec_id"] == "e", "by which the runner knows it again"
        second.say({"id": asked[0]["id"]}, b"answer")
        assert (await call)[1] == b"answer"


async def test_calls_are_answered_in_any_order(hub: LinkHub, link: Link) -> None:
    async with runner(hub) as caller:
        calls = [asyncio.create_task(link.call("op", {"n": number}, timeout=10)) for number in range(20)]
        asked = [await caller.hear() for _ in calls]
        for frame in reversed(asked):
            assert frame is not None
            caller.say({"id": frame[0]["id"], "n": frame[0]["n"]})
        assert [(await call)[0]["n"] for call in calls] == list(range(20))


async def test_answers_to_nobody_are_ignored(hub: LinkHub, link: Link) -> None:
    async with runner(hub) as caller:
        for header in ({"id": 999}, {"id": "1"}, {"id": None}, {}, {"id": [1]}, {"id": True}):
            caller.say(dict(header))
        call = asyncio.create_task(link.call("ping", {}, timeout=10))
        asked = await caller.hear()
        assert asked is not None
        caller.say({"id": asked[0]["id"]})
        caller.say({"id": asked[0]["id"], "twice": True})
        assert "twice" not in (await call)[0]


async def test_a_runner_may_ask_whether_we_are_there(hub: LinkHub, link: Link) -> None:
    async with runner(hub) as caller:
        for number in (1, 2):
            caller.say({"op": "ping", "number": number})
            answer = await caller.hear()
            assert answer is not None and answer[0] == {"op": "pong", "number": number}


async def test_who_asks_without_end_and_reads_nothing_is_hung_up_on(hub: LinkHub, link: Link) -> None:
    async with runner(hub) as caller:
        questions = frames.encode({"op": "ping", "number": 1}) * 10_000
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(60):
                while True:
                    caller.writer.write(questions)
                    await caller.writer.drain()
        await until(lambda: not link.connected, "the runner was hung up on")


async def test_errors_come_back_as_their_classes(hub: LinkHub, link: Link) -> None:
    async with runner(hub) as caller:
        for told, expected in (
            ({"code": "exec_not_found", "message": "no such"}, ExecNotFound),
            ({"code": "of-a-newer-version", "message": "?"}, HoldfastError),
            ("not an object", ProtocolError),
        ):
            call = asyncio.create_task(link.call("x", {}, timeout=10))
            asked = await caller.hear()
            assert asked is not None
            caller.say({"id": asked[0]["id"], "error": told})
            with pytest.raises(expected):
                await call


async def test_deadlines(hub: LinkHub, link: Link) -> None:
    with pytest.raises(SandboxLost, match="answer"):
        await link.call("ping", {}, timeout=0.05)
    with pytest.raises(SandboxLost):
        await link.wait_connected(0.05)
    async with runner(hub) as caller:
        with pytest.raises(SandboxLost, match="ping"):
            await link.call("ping", {}, timeout=0.05)
        assert link._calls == {}, "a call that was given up is forgotten"
        late = await caller.hear()
        assert late is not None
        caller.say({"id": late[0]["id"]})
        call = asyncio.create_task(link.call("ping", {}, timeout=10))
        asked = await caller.hear()
        assert asked is not None
        caller.say({"id": asked[0]["id"]})
        await call


async def test_a_lost_link_ends_everything(hub: LinkHub, link: Link) -> None:
    async with runner(hub) as caller:
        waiting = asyncio.create_task(link.call("exec", {}, timeout=60))
        stream = link.expect_stream("s")
        assert await caller.hear_op() == "exec"
        await hub.close(SESSION, SessionGone("destroyed"))
        with pytest.raises(SessionGone):
            await waiting
        with pytest.raises(SessionGone):
            await stream
        with pytest.raises(SessionGone):
            await link.call("ping", {}, timeout=60)
        assert await caller.hear() is None
    assert not hub.directory(SESSION).exists()
    assert hub.get(SESSION) is None


async def test_a_hub_that_shuts_down_keeps_the_socket_for_the_next(hub: LinkHub, link: Link) -> None:
    async with runner(hub) as caller:
        waiting = asyncio.create_task(link.call("exec", {}, timeout=60))
        assert await caller.hear_op() == "exec"
        await hub.shut_down()
        with pytest.raises(Unavailable):
            await waiting
    assert hub.directory(SESSION).exists()
    again = LinkHub(hub._root)
    try:
        link = await again.listen(SESSION, TOKEN)
        async with runner(again):
            await link.wait_connected(5)
    finally:
        await again.shut_down()


async def test_somebody_is_told_when_the_runner_leaves(hub: LinkHub, link: Link) -> None:
    left = asyncio.Event()
    link.on_disconnect = left.set
    async with runner(hub):
        await link.wait_connected(5)
        assert not left.is_set()
    async with asyncio.timeout(30):
        await left.wait()
    assert not link.connected


async def test_streams(hub: LinkHub, link: Link) -> None:
    """A connection of its own; what came right behind its first frame is the stream's, not a frame."""
    expected = link.expect_stream("s1")
    async with runner(hub), dialled(hub) as caller:
        first = frames.encode({"op": "stream", "v": VERSION, "token": TOKEN, "stream": "s1"})
        caller.writer.write(first + b"\xff\xff\xff\xffraw bytes")
        reader, writer = await asyncio.wait_for(expected, 30)
        assert await reader.readexactly(13) == b"\xff\xff\xff\xffraw bytes"
        caller.writer.write(bytes(3 << 20))
        assert await reader.readexactly(3 << 20) == bytes(3 << 20)
        writer.write(b"back")
        assert await caller.reader.readexactly(4) == b"back"
        writer.close()
        assert link.connected, "the control connection is another one"


async def test_a_stream_that_nobody_expects_is_closed(hub: LinkHub, link: Link) -> None:
    forgotten = link.expect_stream("forgotten")
    link.forget_stream("forgotten")
    assert forgotten.cancelled()
    for name in ("forgotten", "unknown"):
        async with dialled(hub) as caller:
            caller.say({"op": "stream", "v": VERSION, "token": TOKEN, "stream": name})
            assert await caller.hear() is None


async def test_a_sandbox_cannot_use_up_the_hosts_descriptors(hub: LinkHub, link: Link) -> None:
    async with contextlib.AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(dialled(hub)) for _ in range(MAX_CONNECTIONS + 5)]
        async with asyncio.timeout(30):
            refused = [await caller.reader.read(1) for caller in callers[MAX_CONNECTIONS:]]
        assert refused == [b""] * 5
        callers[0].say(HELLO)
        assert await callers[0].hear_op() == "welcome"


@contextlib.asynccontextmanager
async def called(hub: LinkHub, count: int) -> AsyncIterator[list[Caller]]:
    """Streams that a runner opens as if programs in its sandbox had called a broker."""
    async with contextlib.AsyncExitStack() as stack:
        callers = []
        for _ in range(count):
            callers.append(await stack.enter_async_context(dialled(hub)))
            callers[-1].say({"op": "stream", "v": VERSION, "token": TOKEN, "listen": "models"})
            await callers[-1].writer.drain()
        yield callers


class Quiet(asyncio.Protocol):
    """A server that says a word, and is told when its caller has gone."""

    def __init__(self, open_: list["Quiet"]) -> None:
        self._open = open_

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._open.append(self)
        cast(asyncio.Transport, transport).write(b"welcome")

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.remove(self)


@pytest.mark.parametrize("kind", ["a server", "a taker"])
async def test_a_hostile_runner_cannot_open_streams_without_end(hub: LinkHub, link: Link, kind: str) -> None:
    """It has the token, so it may say whatever a good one says; what it opens is counted until it is really gone."""
    served: list[Quiet] = []
    taken: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"welcome")
        await reader.read()
        writer.close()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.add(asyncio.create_task(talk(reader, writer)))

    if kind == "a server":
        link.speak_to_callers("models", lambda: Quiet(served))
    else:
        link.take_callers("models", take)
    with structlog.testing.capture_logs() as log:
        async with called(hub, MAX_CALLED + 20) as callers, asyncio.timeout(60):
            words = [await hear_all(caller) for caller in callers[MAX_CALLED:]]
            assert words == [b""] * 20
            assert [await caller.reader.readexactly(7) for caller in callers[:MAX_CALLED]] == [b"welcome"] * MAX_CALLED
            async with runner(hub):
                await link.wait_connected(5)
                pending = link.expect_stream("s1")
                async with dialled(hub) as asked:
                    asked.say({"op": "stream", "v": VERSION, "token": TOKEN, "stream": "s1"})
                    await asyncio.wait_for(pending, 30)
            callers[0].writer.close()
            await until_let_in(hub)
    told = [line for line in log if line["event"] == "link.too_many_streams"]
    assert len(told) >= 20 and told[0]["session_id"] == SESSION and told[0]["limit"] == MAX_CALLED
    await until(lambda: not served, "all servers are told that their callers have gone")
    await asyncio.gather(*taken)


async def hear_all(caller: Caller) -> bytes:
    """Until the other end hangs up, in whatever way."""
    try:
        return await caller.reader.read(100)
    except ConnectionError:
        return b""


async def until_let_in(hub: LinkHub) -> None:
    while True:
        async with called(hub, 1) as [caller]:
            if await hear_all(caller):
                return


async def test_streams_that_nobody_asked_for_leave_nothing_behind(hub: LinkHub, link: Link) -> None:
    for number in range(200):
        async with dialled(hub) as caller:
            caller.say({"op": "stream", "v": VERSION, "token": TOKEN, "stream": f"made-up-{number}"})
            assert await hear_all(caller) == b""
    async with runner(hub):
        await link.wait_connected(5)


async def test_listening_twice_is_one_link(hub: LinkHub, link: Link) -> None:
    assert await hub.listen(SESSION, TOKEN) is link
    assert hub.get(SESSION) is link


async def test_a_link_that_is_opened_while_the_one_before_is_removed_stays(
    hub: LinkHub, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing, go = threading.Event(), threading.Event()
    real = shutil.rmtree

    def slow(path: Path, *, ignore_errors: bool) -> None:
        removing.set()
        assert go.wait(30)
        real(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", slow)
    closing = asyncio.create_task(hub.close(SESSION, SandboxLost("it has died")))
    await until(removing.is_set, "it is being removed")
    opening = asyncio.create_task(hub.listen(SESSION, TOKEN))
    await linger()
    go.set()
    again, _ = await asyncio.gather(opening, closing)
    assert again is not link
    async with runner(hub):
        await again.wait_connected(30)


async def test_callers_are_handed_to_who_takes_them(hub: LinkHub, link: Link) -> None:
    taken: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    link.take_callers("egress", lambda reader, writer: taken.append((reader, writer)))
    first = {"op": "stream", "v": VERSION, "token": TOKEN, "stream": "x"}
    async with dialled(hub) as caller:
        caller.writer.write(frames.encode({**first, "listen": "egress"}) + b"GET")
        await until(lambda: bool(taken), "the caller is handed over")
        reader, writer = taken[0]
        assert await reader.readexactly(3) == b"GET"
        writer.write(b"200")
        assert await caller.reader.readexactly(3) == b"200"
        writer.close()
    for header in ({**first, "listen": "nobody"}, {**first, "listen": "egress", "token": "wrong"}):
        async with dialled(hub) as caller:
            caller.say(header)
            while await caller.hear() is not None:
                pass
    assert len(taken) == 1
    link.lose(SessionGone("destroyed"))
    async with dialled(hub) as caller:
        caller.say({**first, "listen": "egress"})
        assert await caller.hear() is None
    assert len(taken) == 1


async def test_a_server_speaks_to_callers_from_their_first_byte(hub: LinkHub, link: Link) -> None:
    class Echo(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast(asyncio.Transport, transport)

        def data_received(self, data: bytes) -> None:
            self.transport.write(data)

    full = False
    link.speak_to_callers("models", lambda: None if full else Echo())
    first = {"op": "stream", "v": VERSION, "token": TOKEN, "stream": "x", "listen": "models"}
    async with dialled(hub) as caller:
        caller.writer.write(frames.encode(first) + b"one")
        assert await caller.reader.readexactly(3) == b"one"
        caller.writer.write(b"two")
        assert await caller.reader.readexactly(3) == b"two"
    full = True
    async with dialled(hub) as caller:
        caller.say(first)
        assert await caller.reader.read() == b""
    full = False
    link.lose(SessionGone("destroyed"))
    async with dialled(hub) as caller:
        caller.say(first)
        assert await caller.reader.read() == b""


async def test_many_small_frames_do_not_hold_up_others(hub: LinkHub, link: Link) -> None:
    """A runner may send tens of thousands in one go; somebody else has a turn in between, and none is lost."""
    frame = frames.encode({"op": "ping", "number": 7})
    count = 30_000
    async with runner(hub) as caller:
        await link.wait_connected(5)
        said = most = heard = 0

        def turn() -> None:
            nonlocal said, most
            most, said = max(most, said), 0
            asyncio.get_running_loop().call_soon(turn)

        def count_one(connection: connections.Connection, header: frames.Header, body: bytes) -> None:
            nonlocal said, heard
            said += 1
            heard += 1

        link.runner_said = count_one  # type: ignore[method-assign]
        turn()
        caller.writer.write(frame * count)
        await until(lambda: heard == count, "all have come")
    assert 0 < most <= connections.FRAMES_AT_ONCE
