"""Providers on the network, as they hang up and as they keep one waiting."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from holdfast.broker.models.providers import http
from holdfast.broker.models.providers.catalogue import Provider, ProviderKind
from holdfast.broker.models.providers.http import HttpUpstream
from holdfast.broker.models.providers.upstream import Broken, Outgoing, Stale, Unreachable
from holdfast.network.outside import Outside
from holdfast.network.proxies import Proxies
from support.servers.forward_proxy import forward_proxy

pytestmark = pytest.mark.anyio

GOOD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
BEGUN = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"


@contextlib.asynccontextmanager
async def provider(*answers: bytes | float | None) -> AsyncIterator[Outgoing]:
    """Each connection gets these, bytes one per request. Seconds are waited before the next; None hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\nask")
            for answer in answers:
                if answer is None:
                    break
                if isinstance(answer, float):
                    await asyncio.sleep(answer)
                    continue
                writer.write(answer)
                await reader.readuntil(b"\r\n\r\nask")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    one = Provider("one", ProviderKind.OPENAI, f"http://127.0.0.1:{port}", None, (), frozenset())
    async with server:
        yield Outgoing(one, "POST", "/x", (), {}, b"ask")


async def said(upstream: HttpUpstream, outgoing: Outgoing) -> bytes:
    async with asyncio.timeout(20):
        reply = await upstream.send(outgoing)
        try:
            return b"".join([chunk async for chunk in reply.chunks()])
        finally:
            reply.close()


@contextlib.asynccontextmanager
async def an_upstream(idle_seconds: float = 10.0, proxy: str = "") -> AsyncIterator[HttpUpstream]:
    outside = Outside(proxies=Proxies.from_environment({"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}))
    upstream = HttpUpstream(idle_seconds=idle_seconds, outside=outside)
    try:
        yield upstream
    finally:
        await upstream.close()


async def test_a_kept_connection_that_is_closed_at_once_was_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "STALE_SECONDS", 20.0)
    async with provider(GOOD, None) as outgoing, an_upstream() as upstream:
        assert await said(upstream, outgoing) == b"{}"
        with pytest.raises(Stale):
            await said(upstream, outgoing)


async def test_a_new_connection_is_never_stale() -> None:
    async with provider(None) as outgoing, an_upstream() as upstream:
        with pytest.raises(Unreachable, match="hung up") as caught:
            await said(upstream, outgoing)
        assert not isinstance(caught.value, Stale)


async def test_one_that_is_closed_later_may_have_been_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "STALE_SECONDS", 0.05)
    async with provider(GOOD, 0.2, None) as outgoing, an_upstream() as upstream:
        assert await said(upstream, outgoing) == b"{}"
        with pytest.raises(Unreachable, match="hung up") as caught:
            await said(upstream, outgoing)
        assert not isinstance(caught.value, Stale)


async def test_the_first_word_may_take_longer_than_the_next() -> None:
    async with an_upstream(idle_seconds=0.1) as upstream:
        async with provider(0.5, GOOD) as outgoing:
            assert await said(upstream, outgoing) == b"{}"
        async with provider(BEGUN) as outgoing:
            with pytest.raises(Broken, match="too long"):
                await said(upstream, outgoing)


async def test_providers_behind_the_hosts_own_proxy() -> None:
    """Their names are known to the proxy alone; its password is told to it, and to nobody else."""
    async with provider(GOOD) as outgoing:
        port = int(outgoing.provider.base_url.rpartition(":")[2])
        far = replace(outgoing, provider=replace(outgoing.provider, base_url="http://far.test"))
        async with forward_proxy({"far.test": ("127.0.0.1", port)}, login="me:secret") as proxy:
            async with an_upstream(proxy=proxy.url) as upstream:
                assert await said(upstream, far) == b"{}"
            assert proxy.heads[0].startswith(b"POST http://far.test/x ")
            async with an_upstream(proxy=proxy.url.replace("secret", "wrong")) as upstream:
                with pytest.raises(Unreachable, match="the daemon's proxy has answered 407"):
                    await upstream.send(far)
        async with forward_proxy({}) as proxy, an_upstream(proxy=proxy.url) as upstream:
            secure = replace(far, provider=replace(far.provider, base_url="https://far.test"))
            with pytest.raises(Unreachable, match="the daemon's proxy has answered 502"):
                await upstream.send(secure)
            assert proxy.heads[0].startswith(b"CONNECT far.test:443 ")
    async with an_upstream(proxy="http://127.0.0.1:1") as upstream:
        with pytest.raises(Unreachable, match="no connection to the daemon's proxy"):
            await upstream.send(far)
