"""The way to models: sandboxes of threads have it, from their first moment on, whatever becomes of them."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from holdfast.broker.door import LISTENER, ModelBroker, Visit
from holdfast.callers.types import ROOT
from holdfast.drivers.fake.runner import FakeRunner
from holdfast.records.machine import PausedAs
from holdfast.sessions.service import SessionService
from holdfast.sessions.types import CreateRequest, ForkRequest
from holdfast.vocabulary.models import PORT
from support.fake_host import DEFAULTS, FakeHost, new, open_host, until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[FakeHost]:
    async with open_host(tmp_path) as host:
        yield host


def broker(name: str = "first", *, unavailable: str | None = None) -> ModelBroker:
    async def answer(visit: Visit) -> web.StreamResponse:
        return web.json_response({"broker": name, "session": visit.session_id, "rest": visit.rest})

    made = ModelBroker(unavailable=unavailable)
    made.serve("echo", answer)
    return made


def runner(host: FakeHost, session_id: str) -> FakeRunner:
    found = host.world.sandboxes[session_id].runner
    assert found is not None
    return found


async def ask(host: FakeHost, session_id: str, path: str = "/echo/a/b%2Fc?x=1") -> tuple[str, dict[str, str]]:
    """As somebody in the sandbox; the status line, and what the broker says."""
    reader, writer = await runner(host, session_id).call_out(LISTENER)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        async with asyncio.timeout(30):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    return head.split(b"\r\n")[0].decode(), json.loads(body) if body else {}


async def kept(service: SessionService) -> str:
    return (await service.create(CreateRequest(kept=True), idempotency_key=None, caller=ROOT)).id


async def test_a_threads_sandbox_has_a_port_for_models(host: FakeHost) -> None:
    async with host.daemon(way_out=broker()) as service:
        session, plain = await kept(service), await new(service)
        assert runner(host, session).listening == {LISTENER: PORT}
        assert runner(host, plain).listening == {}
        status, said = await ask(host, session)
        assert status == "HTTP/1.1 200 OK"
        assert said == {"broker": "first", "session": session, "rest": "a/b%2Fc"}
        assert (await ask(host, session, "/other"))[0] == "HTTP/1.1 404 Not Found"


async def test_a_connection_is_kept_alive(host: FakeHost) -> None:
    async with host.daemon(way_out=broker()) as service:
        reader, writer = await runner(host, await kept(service)).call_out(LISTENER)
        async with asyncio.timeout(30):
            for number in range(3):
                writer.write(f"GET /echo/{number} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
                assert f'"{number}"'.encode() in await reader.readuntil(b"}")
        writer.close()


async def test_the_next_daemon_answers(host: FakeHost) -> None:
    first = broker()
    async with host.daemon(way_out=first) as service:
        session = await kept(service)
        reader, writer = await runner(host, session).call_out(LISTENER)
        await until(lambda: bool(first._servers[session].connections), "the caller has arrived")
        await first.close()
        assert await reader.read() == b"", "a daemon that stops hangs up"
        writer.close()
    async with host.daemon(way_out=broker("second")):
        assert (await ask(host, session))[1]["broker"] == "second"


async def test_after_sleep(host: FakeHost) -> None:
    async with host.daemon(way_out=broker()) as service:
        session = await kept(service)
        await service.pause(session, PausedAs.FILES)
        await service.wake(session)
        assert runner(host, session).listening == {LISTENER: PORT}
        assert (await ask(host, session))[1]["session"] == session


async def test_out_of_the_pool(host: FakeHost) -> None:
    settings = dataclasses.replace(DEFAULTS, pool={"empty": 2})
    async with host.daemon(settings, way_out=broker()) as service:
        await until(lambda: service._pool._pool.count_ready("empty") == 2, "the pool is full")
        ready = {one.id for one in service._pool._pool.ready("empty")}
        session, plain = await kept(service), await new(service)
        assert {session, plain} == ready
        assert runner(host, session).listening == {LISTENER: PORT}
        assert runner(host, plain).listening == {}
        assert (await ask(host, session))[1]["session"] == session


async def test_a_copy_of_a_threads_sandbox_is_no_threads(host: FakeHost) -> None:
    async with host.daemon(way_out=broker()) as service:
        session = await kept(service)
        copy, _kind = await service.fork(session, ForkRequest(), idempotency_key=None, caller=ROOT)
        assert not runner(host, copy.id).listening or (await ask(host, copy.id))[1]["session"] == copy.id


async def test_what_a_destroyed_session_had_open_is_ended(host: FakeHost) -> None:
    out = broker()
    async with host.daemon(way_out=out) as service:
        session = await kept(service)
        reader, writer = await runner(host, session).call_out(LISTENER)
        await until(lambda: bool(out._servers[session].connections), "the caller has arrived")
        await service.destroy(session)
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        writer.close()
        assert session not in out._servers


async def test_where_sandboxes_have_no_network_of_their_own_there_is_no_port(host: FakeHost) -> None:
    async with host.daemon(way_out=broker(unavailable="they share the host's")) as service:
        assert runner(host, await kept(service)).listening == {}
