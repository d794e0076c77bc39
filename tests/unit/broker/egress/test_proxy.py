"""The egress proxy as a program in the sandbox meets it: over a stream, with real servers behind it."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from holdfast.broker.egress import upstream as upstreams
from holdfast.broker.egress.addresses import PrivateHosts
from holdfast.broker.egress.metrics import EgressMetrics
from holdfast.broker.egress.proxy import EgressDeadlines, EgressProxy
from holdfast.broker.egress.upstream import EgressUpstream
from holdfast.network.http_peer import Stream
from holdfast.network.proxies import Proxies
from holdfast.records.host_pattern import Address
from holdfast.records.network import NetworkPolicy
from support.servers.forward_proxy import ForwardProxy, forward_proxy
from support.waiting import until

pytestmark = pytest.mark.anyio
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """A server that does what ``handler`` does, and counts who is there."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.heads: list[bytes] = []
        self.open = 0
        self.port = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._handler(reader, writer)
        finally:
            self.open -= 1
            writer.close()

    async def head(self, reader: asyncio.StreamReader) -> bytes:
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        return self.heads[-1]


@contextlib.asynccontextmanager
async def serving(make: Callable[[Server], Handler]) -> AsyncIterator[Server]:
    server = Server(lambda reader, writer: make(server)(reader, writer))
    listener = await asyncio.start_server(server._serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


def answering(answer: bytes) -> Callable[[Server], Handler]:
    def make(server: Server) -> Handler:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await server.head(reader)
            writer.write(answer)
            await writer.drain()

        return handle

    return make


async def resolve(_host: str) -> Sequence[Address]:
    return [ipaddress.ip_address("127.0.0.1")]


class Proxy:
    def __init__(
        self,
        policy: NetworkPolicy,
        private: Sequence[str],
        deadlines: EgressDeadlines,
        upstream: EgressUpstream | None = None,
    ) -> None:
        self.registry = CollectorRegistry()
        upstream = upstream or EgressUpstream(PrivateHosts.parse(private), resolve)
        self.proxy = EgressProxy("ses_1", policy, upstream, EgressMetrics(self.registry), deadlines)

    def count(self, outcome: str) -> float:
        return self.registry.get_sample_value("holdfast_egress_requests_total", {"outcome": outcome}) or 0.0

    @contextlib.asynccontextmanager
    async def caller(self) -> AsyncIterator[Stream]:
        inside, outside = socket.socketpair()
        theirs = await asyncio.open_unix_connection(sock=inside, limit=1 << 16)
        ours = await asyncio.open_unix_connection(sock=outside, limit=1 << 16)
        serving = asyncio.create_task(self.proxy.serve(ours))
        serving.add_done_callback(lambda _: ours[1].close())
        try:
            async with asyncio.timeout(30):
                yield theirs
        finally:
            theirs[1].close()
            async with asyncio.timeout(30):
                await serving


def proxy(*patterns: str, private: Sequence[str] = ("127.0.0.0/8",), deadlines: EgressDeadlines | None = None) -> Proxy:
    return Proxy(NetworkPolicy.allowing(patterns or ["x.example"]), private, deadlines or EgressDeadlines())


async def ask(caller: Stream, request: bytes) -> tuple[bytes, bytes]:
    """Head and body of the answer; the body by its Content-Length."""
    caller[1].write(request)
    return await hear(caller)


async def hear(caller: Stream) -> tuple[bytes, bytes]:
    head = await caller[0].readuntil(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
    return head, await caller[0].readexactly(int(fields.get(b"content-length", b"0")))


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


# --- plain HTTP ---


async def test_a_request_is_forwarded_for_the_host_that_was_checked() -> None:
    async with serving(answering(OK)) as server:
        allowed = proxy(f"a.example:{server.port}")
        async with allowed.caller() as caller:
            request = (
                f"GET http://A.Example.:{server.port}/p?q=1 HTTP/1.1\r\nHost: secret.internal\r\nX-Mine: 1\r\n"
                "Connection: keep-alive, x-hop\r\nX-Hop: 1\r\nProxy-Authorization: Basic x\r\n"
                "Proxy-Connection: keep-alive\r\nUpgrade: websocket\r\n\r\n"
            )
            head, body = await ask(caller, request.encode())
        assert head.startswith(b"HTTP/1.1 200 OK") and body == b"ok"
        sent = server.heads[0].lower()
        assert sent.startswith(b"get /p?q=1 http/1.1\r\n")
        assert f"host: a.example:{server.port}".encode() in sent and b"x-mine: 1" in sent
        for word in (b"secret", b"proxy-", b"x-hop", b"upgrade", b"keep-alive"):
            assert word not in sent
        assert allowed.count("allowed") == 1


async def test_several_requests_on_one_connection() -> None:
    async with serving(answering(OK)) as server:
        async with proxy(f"a.example:{server.port}").caller() as caller:
            for _ in range(3):
                request = f"GET http://a.example:{server.port}/ HTTP/1.1\r\nHost: a\r\n\r\n".encode()
                assert (await ask(caller, request))[1] == b"ok"
            caller[1].write(request + request)  # the second before the first is answered
            assert (await hear(caller))[1] == (await hear(caller))[1] == b"ok"
        assert len(server.heads) == 5


@pytest.mark.parametrize("ending", ["chunked", "close"])
async def test_answers_without_a_length(ending: str) -> None:
    body = b"5\r\nhello\r\n0\r\n\r\n" if ending == "chunked" else b"hello"
    field = b"Transfer-Encoding: chunked\r\n" if ending == "chunked" else b""
    answer = b"HTTP/1.1 200 OK\r\n" + field + b"\r\n" + body
    async with serving(answering(answer)) as server, proxy(f"a.example:{server.port}").caller() as caller:
        target = f"http://a.example:{server.port}/"
        caller[1].write(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert b"chunked" in await caller[0].readuntil(b"\r\n\r\n")
        assert await caller[0].readuntil(b"0\r\n\r\n") == b"5\r\nhello\r\n0\r\n\r\n"
        caller[1].write(f"GET {target} HTTP/1.0\r\n\r\n".encode())
        assert (await caller[0].read()).endswith(b"\r\n\r\nhello"), "HTTP/1.0 knows no chunks"


async def test_a_chunked_upload_and_100_continue() -> None:
    def make(server: Server) -> Handler:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await server.head(reader)
            server.heads.append(await reader.readuntil(b"0\r\n\r\n"))
            writer.write(OK)

        return handle

    async with serving(make) as server, proxy(f"a.example:{server.port}").caller() as caller:
        head = (
            f"PUT http://a.example:{server.port}/ HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
            "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n"
        )
        caller[1].write(head.encode())
        assert (await caller[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        assert (await ask(caller, b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"))[1] == b"ok"
        assert b"content-length" not in server.heads[0].lower() and b"expect" not in server.heads[0].lower()
        assert server.heads[1] == b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"


async def test_a_head_request_has_no_body_in_its_answer() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    async with serving(answering(answer)) as server, proxy(f"a.example:{server.port}").caller() as caller:
        for _ in range(2):
            caller[1].write(f"HEAD http://a.example:{server.port}/ HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            assert b"200 OK" in await caller[0].readuntil(b"\r\n\r\n")
        caller[1].write(b"HEAD http://b.example/ HTTP/1.1\r\nHost: b\r\n\r\n")
        assert b" 403 " in await caller[0].readuntil(b"\r\n\r\n")
        assert await caller[0].read() == b""


async def test_an_early_answer_to_a_large_upload_arrives() -> None:
    def make(server: Server) -> Handler:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await server.head(reader)
            writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
            writer.write_eof()
            await reader.read()  # closing on unread bytes would reset the connection

        return handle

    async with serving(make) as server, proxy(f"a.example:{server.port}").caller() as caller:
        caller[1].write(f"PUT http://a.example:{server.port}/ HTTP/1.1\r\nHost: a\r\n".encode())
        caller[1].write(b"Content-Length: 100000000\r\n\r\n" + bytes(1 << 20))
        head, body = await hear(caller)
        assert b" 413 " in head and body == b"no"


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 101 Switching\r\n\r\n"])
async def test_a_server_that_does_not_answer_in_http(answer: bytes) -> None:
    async with serving(answering(answer)) as server:
        allowed = proxy(f"a.example:{server.port}")
        async with allowed.caller() as caller:
            request = f"GET http://a.example:{server.port}/ HTTP/1.1\r\nHost: a\r\n\r\n".encode()
            head, body = await ask(caller, request)
            assert b" 502 " in head and b"a.example" in body


async def test_half_an_answer_is_seen_as_such() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"
    async with serving(answering(answer)) as server, proxy(f"a.example:{server.port}").caller() as caller:
        caller[1].write(f"GET http://a.example:{server.port}/ HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert (await caller[0].read()).endswith(b"half")


# --- CONNECT ---


def echoing(server: Server) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write(b"END")

    return handle


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_tunnel_carries_bytes_both_ways_and_their_end(version: str) -> None:
    async with serving(echoing) as server, proxy(f"a.example:{server.port}").caller() as caller:
        host = "Host: a\r\n" if version == "1.1" else ""
        caller[1].write(f"CONNECT a.example:{server.port} HTTP/{version}\r\n{host}\r\nearly".encode())
        assert (await caller[0].readuntil(b"\r\n\r\n")).split()[1] == b"200"
        assert await caller[0].readexactly(5) == b"early"
        data = bytes(range(256)) * 4096
        caller[1].write(data)
        assert await caller[0].readexactly(len(data)) == data
        caller[1].write_eof()
        assert await caller[0].read() == b"END"


async def test_a_tunnel_whose_caller_vanishes_is_closed() -> None:
    async with serving(echoing) as server:
        async with proxy(f"a.example:{server.port}").caller() as caller:
            caller[1].write(f"CONNECT a.example:{server.port} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            await caller[0].readuntil(b"\r\n\r\n")
            assert server.open == 1
            caller[1].transport.abort()
        await until_nobody(server)


async def test_a_request_whose_caller_vanishes_is_given_up() -> None:
    """Though the server would never have answered."""

    def make(server: Server) -> Handler:
        async def handle(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            await server.head(reader)
            await reader.read()

        return handle

    async with serving(make) as server:
        async with proxy(f"a.example:{server.port}").caller() as caller:
            caller[1].write(f"GET http://a.example:{server.port}/ HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            await until(lambda: bool(server.heads), "the server is asked")
        await until_nobody(server)


async def test_a_server_that_never_reads_keeps_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that it does not take wait in our memory; they must not wait there for ever."""
    monkeypatch.setattr(upstreams, "LINGER_SECONDS", 0.05)
    never = asyncio.Event()

    def make(_server: Server) -> Handler:
        async def handle(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            await never.wait()

        return handle

    async with serving(make) as server:
        before = len(list(Path("/proc/self/fd").iterdir()))
        async with proxy(f"a.example:{server.port}", deadlines=EgressDeadlines(idle=0.5)).caller() as caller:
            caller[1].write(f"CONNECT a.example:{server.port} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            await caller[0].readuntil(b"\r\n\r\n")
            caller[1].write(bytes(16 << 20))
            with pytest.raises(ConnectionError):  # nothing has moved for too long
                await caller[0].read()
            caller[1].transport.abort()
        await until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before + 1, "only the server's own is left")
        never.set()
        await until_nobody(server)


async def until_nobody(server: Server) -> None:
    await until(lambda: not server.open, "nobody is connected")


# --- refusals ---


@pytest.mark.parametrize(
    ("request_line", "why"),
    [
        ("GET http://b.example/ HTTP/1.1", "allow list"),
        ("GET http://a.example:8080/ HTTP/1.1", "allow list"),
        ("CONNECT b.example:443 HTTP/1.1", "allow list"),
        ("GET http://a.example/ HTTP/1.1", "not a public address"),
        ("CONNECT a.example:443 HTTP/1.1", "not a public address"),
        ("CONNECT 169.254.169.254:80 HTTP/1.1", "metadata"),
        ("CONNECT [::1]:443 HTTP/1.1", "not a public address"),
        ("CONNECT [::ffff:169.254.169.254]:443 HTTP/1.1", "metadata"),
        ("GET http://metadata.google.internal/ HTTP/1.1", "metadata"),
    ],
)
async def test_what_is_refused_is_told_counted_and_logged(request_line: str, why: str) -> None:
    patterns = ("a.example", "169.254.169.254", "::1", "::ffff:169.254.169.254", "metadata.google.internal")
    strict = proxy(*patterns, private=())
    with capture_logs() as logs:
        async with strict.caller() as caller:
            head, body = await ask(caller, f"{request_line}\r\nHost: x\r\n\r\n".encode())
            assert head.startswith(b"HTTP/1.1 403 holdfast: ") and why in body.decode()
            assert await caller[0].read() == b""
    refused = [line for line in logs if line["event"] == "egress.refused"]
    assert len(refused) == 1 and strict.count("refused") == 1
    assert refused[0]["session_id"] == "ses_1" and refused[0]["host"] and refused[0]["port"]
    assert why in refused[0]["why"] and refused[0]["log_level"] == "warning"


async def test_a_redirect_to_an_internal_host_leads_nowhere() -> None:
    answer = b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(answer)) as server, proxy(f"a.example:{server.port}").caller() as caller:
        head, _ = await ask(caller, f"GET http://a.example:{server.port}/ HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert b"302" in head
        head, _ = await ask(caller, b"GET http://169.254.169.254/ HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b" 403 " in head


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"GET https://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET ftp://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://user@a.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://[::1/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://127.1/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://a.example:99999/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT a.example HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT http://a.example:443 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS to a proxy\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
    ],
    ids=range(12),
)
async def test_nonsense_is_answered_and_hung_up_on(request_bytes: bytes) -> None:
    strict = proxy("a.example")
    async with strict.caller() as caller:
        head, body = await ask(caller, request_bytes)
        assert head.split()[1] in (b"400", b"431"), head
        assert body.startswith(b"holdfast: ")
        assert await caller[0].read() == b""
    assert strict.count("bad_request") == 1


# --- deadlines ---


async def test_deadlines() -> None:
    quick = EgressDeadlines(head=0.05, next_head=0.05, idle=0.05)
    async with proxy(deadlines=quick).caller() as silent:
        assert await silent[0].read() == b""
    async with proxy(deadlines=quick).caller() as slow:
        slow[1].write(b"GET http://x.exa")
        assert await slow[0].read() == b""

    def never(server: Server) -> Handler:
        async def handle(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            await reader.read()

        return handle

    async with serving(never) as server:
        async with proxy(f"a.example:{server.port}", deadlines=quick).caller() as caller:
            head, _ = await ask(caller, f"GET http://a.example:{server.port}/ HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            assert b" 504 " in head
        async with proxy(f"a.example:{server.port}", deadlines=quick).caller() as caller:
            caller[1].write(f"CONNECT a.example:{server.port} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            assert (await caller[0].read()).endswith(b"\r\n\r\n")
        await until_nobody(server)


async def test_a_name_that_does_not_answer() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    allowed = proxy(f"a.example:{port}")
    async with allowed.caller() as caller:
        head, body = await ask(caller, f"CONNECT a.example:{port} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert b" 502 " in head and b"cannot connect to a.example" in body
    assert allowed.count("unreachable") == 1


# --- behind a proxy of the host's own ---


@contextlib.asynccontextmanager
async def behind(
    hosts: dict[str, tuple[str, int]], *patterns: str, login: str = ""
) -> AsyncIterator[tuple[Proxy, ForwardProxy]]:
    async def unknown(host: str) -> Sequence[Address]:
        if host == "inside.test":
            return [ipaddress.ip_address("10.0.0.1")]
        raise OSError(2, "there is no such name")

    async with forward_proxy(hosts, login) as outer:
        proxies = Proxies.from_environment({"HTTP_PROXY": outer.url, "HTTPS_PROXY": outer.url})
        upstream = EgressUpstream(PrivateHosts(), unknown, proxies)
        yield Proxy(NetworkPolicy.allowing(patterns), (), EgressDeadlines(), upstream), outer


@pytest.mark.parametrize("login", ["", "me:secret"])
async def test_the_hosts_own_proxy_is_used_and_asked_by_name(login: str) -> None:
    async with serving(answering(OK)) as server:
        hosts = {"a.test": ("127.0.0.1", server.port), "a.test:443": ("127.0.0.1", server.port)}
        async with behind(hosts, "a.test", login=login) as (ours, outer):
            async with ours.caller() as caller:
                head, body = await ask(caller, b"GET http://a.test/p HTTP/1.1\r\nHost: a.test\r\n\r\n")
            assert body == b"ok", head
            assert outer.heads[0].startswith(b"GET http://a.test/p HTTP/1.1")
            async with ours.caller() as caller:
                caller[1].write(b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n")
                assert (await caller[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
                _head, body = await ask(caller, b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
            assert body == b"ok" and outer.heads[1].startswith(b"CONNECT a.test:443 ")
        assert all(b"roxy-" not in head for head in server.heads), "what is for the proxy alone reached the server"


async def test_behind_a_proxy_the_same_is_refused() -> None:
    async with behind({}, "a.test", "inside.test", "10.0.0.1") as (ours, outer):
        for place, why in (("b.test", b"not in the allow list"), ("inside.test", b"not a public address"),
                           ("10.0.0.1", b"not a public address")):  # fmt: skip
            async with ours.caller() as caller:
                head, body = await ask(caller, f"CONNECT {place}:443 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                assert b" 403 " in head and why in body
        assert outer.heads == []
        async with ours.caller() as caller:
            head, body = await ask(caller, b"CONNECT a.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b" 502 " in head and b"it answered 502" in body


async def test_a_refusal_says_what_why_and_which_setting() -> None:
    """Also in the first line: pip, Go and others show that one of an answer to CONNECT, and curl not even that."""
    ours = proxy("a.example", private=())
    for place, *words in (
        ("b.example:443", b"b.example:443 is not in the allow list", b"network.allow", b"--allow"),
        ("a.example:443", b"a.example is 127.0.0.1, which is not a public address", b"egress_private_hosts"),
    ):
        async with ours.caller() as caller:
            head, body = await ask(caller, f"CONNECT {place!s} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            first = head.split(b"\r\n")[0]
            assert first.startswith(b"HTTP/1.1 403 holdfast: ")
            assert all(word in first and word in body for word in words), (first, body)
