"""Network policies in the session service: chosen, kept, shown, and attached to the link of every live session."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from holdfast.broker.egress import egress as egresses
from holdfast.broker.egress.addresses import PrivateHosts
from holdfast.broker.egress.egress import LISTENER, PORT, EgressBroker
from holdfast.broker.egress.metrics import EgressMetrics
from holdfast.callers.types import ROOT
from holdfast.drivers.base import Capabilities
from holdfast.drivers.fake.runner import FakeRunner
from holdfast.errors import BadInput
from holdfast.records.host_pattern import Address
from holdfast.records.limits import Network
from holdfast.records.network import NetworkPolicy
from holdfast.records.spec import SessionSpec
from holdfast.sessions.create.choices import choose_spec
from holdfast.sessions.service import SessionService
from holdfast.sessions.types import CreateRequest
from support.fake_host import DEFAULTS, FakeHost, open_host, run, until

pytestmark = pytest.mark.anyio
ALLOW = NetworkPolicy.allowing(["a.example"])
REQUEST = b"GET http://b.example/ HTTP/1.1\r\nHost: b\r\n\r\n"


@pytest.fixture
async def fake_host(tmp_path: Path) -> AsyncIterator[FakeHost]:
    async with open_host(tmp_path) as fake_host:
        yield fake_host


async def nowhere(_host: str) -> Sequence[Address]:
    return [ipaddress.ip_address("127.0.0.1")]


def broker(registry: CollectorRegistry | None = None) -> EgressBroker:
    return EgressBroker(PrivateHosts(), EgressMetrics(registry or CollectorRegistry()), resolve=nowhere)


def runner(fake_host: FakeHost, session_id: str) -> FakeRunner:
    found = fake_host.world.sandboxes[session_id].runner
    assert found is not None
    return found


async def answer(fake_host: FakeHost, session_id: str) -> bytes:
    reader, writer = await runner(fake_host, session_id).call_out(LISTENER)
    try:
        writer.write(REQUEST)
        async with asyncio.timeout(30):
            return await reader.read()
    finally:
        writer.close()


def has_callers(out: EgressBroker, session_id: str, count: int) -> bool:
    return len(out._tasks[session_id]) == count


async def create(service: SessionService, policy: NetworkPolicy | None, **env: str) -> str:
    return (await service.create(CreateRequest(network=policy, env=env), idempotency_key=None, caller=ROOT)).id


async def test_a_session_with_a_list_gets_a_proxy_and_is_told_of_it(fake_host: FakeHost) -> None:
    async with fake_host.daemon(way_out=broker()) as service:
        session = await create(service, ALLOW, HTTPS_PROXY="http://mine", A="1")
        assert runner(fake_host, session).listening == {LISTENER: PORT}
        assert (await answer(fake_host, session)).startswith(b"HTTP/1.1 403 ")
        result = await run(service, session, "echo $HTTP_PROXY $HTTPS_PROXY $https_proxy $NO_PROXY $A")
        proxy = b"http://127.0.0.1:3128"
        assert result.stdout == proxy + b" http://mine " + proxy + b" localhost,127.0.0.1,::1 1\n"
        assert (await service.get(session)).spec.network == ALLOW
        assert fake_host.world.sandboxes[session].spec.network is Network.NONE


@pytest.mark.parametrize("policy", [None, NetworkPolicy.NONE, NetworkPolicy.FULL])
async def test_other_sessions_get_none(fake_host: FakeHost, policy: NetworkPolicy | None) -> None:
    async with fake_host.daemon(way_out=broker()) as service:
        session = await create(service, policy)
        assert runner(fake_host, session).listening == {}
        assert await answer(fake_host, session) == b""
        assert (await run(service, session, "echo [$HTTP_PROXY]")).stdout == b"[]\n"


async def test_the_next_daemon_takes_over_the_way_out(fake_host: FakeHost) -> None:
    first = broker()
    async with fake_host.daemon(way_out=first) as service:
        session = await create(service, ALLOW)
        reader, writer = await runner(fake_host, session).call_out(LISTENER)
        await until(lambda: bool(first._tasks[session]), "the caller has arrived")
        await first.close()
        assert await reader.read() == b"", "a daemon that stops hangs up"
        writer.close()
    second = broker()
    async with fake_host.daemon(way_out=second) as service:
        assert (await answer(fake_host, session)).startswith(b"HTTP/1.1 403 ")
        assert (await service.get(session)).spec.network == ALLOW


async def test_destroying_a_session_ends_its_connections(fake_host: FakeHost) -> None:
    registry = CollectorRegistry()
    out = broker(registry)
    async with fake_host.daemon(way_out=out) as service:
        session = await create(service, ALLOW)
        reader, writer = await runner(fake_host, session).call_out(LISTENER)
        await until(lambda: bool(out._tasks[session]), "the caller has arrived")
        assert registry.get_sample_value("holdfast_egress_connections") == 1
        await service.destroy(session)
        assert await reader.read() == b""
        writer.close()
        await until(lambda: registry.get_sample_value("holdfast_egress_connections") == 0, "its task has ended")
        assert out._tasks == {}


async def test_a_session_has_so_many_connections_and_no_more(
    fake_host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egresses, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(egresses, "MAX_TURNED_AWAY", 1)
    out = broker()
    async with fake_host.daemon(way_out=out) as service:
        session = await create(service, ALLOW)
        callers = []
        for count in range(1, 5):
            callers.append(await runner(fake_host, session).call_out(LISTENER))
            await until(partial(has_callers, out, session, count), "the caller has arrived")
        hung_up, writer = await runner(fake_host, session).call_out(LISTENER)
        assert await hung_up.read() == b""
        writer.close()
        callers[3][1].write(REQUEST)
        assert (await callers[3][0].read()).startswith(b"HTTP/1.1 503 holdfast: this session has 3 connections")
        callers[0][1].close()
        await until(lambda: len(out._tasks[session]) == 2, "the first has gone")
        assert (await answer(fake_host, session)).startswith(b"HTTP/1.1 403 ")
        for _reader, writer in callers:
            writer.close()


async def test_without_a_broker_there_are_no_lists(fake_host: FakeHost) -> None:
    async with fake_host.daemon() as service:
        with pytest.raises(BadInput, match="egress"):
            await create(service, ALLOW)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]:80", "10.0.0.1:8080", "169.254.169.254", "metadata"])
async def test_a_list_with_what_nobody_may_reach_is_refused(fake_host: FakeHost, host: str) -> None:
    async with fake_host.daemon(way_out=broker()) as service:
        with pytest.raises(BadInput, match="no session may reach it") as caught:
            await create(service, NetworkPolicy.allowing(["a.example", host]))
        assert f"'{host}'" in caught.value.message
        assert await fake_host.rows() == []


def test_a_driver_offers_what_it_can() -> None:
    only_full = Capabilities(isolation=False, networks=frozenset({Network.FULL}))
    only_none = Capabilities(isolation=True, network_remedy="Install more")
    assert choose_spec(CreateRequest(), DEFAULTS, only_full).network == NetworkPolicy.FULL
    with pytest.raises(BadInput, match="allow"):
        choose_spec(CreateRequest(network=ALLOW), DEFAULTS, only_full)
    assert choose_spec(CreateRequest(network=ALLOW), DEFAULTS, only_none).network == ALLOW
    with pytest.raises(BadInput, match=r"does not offer full; it offers none\. Install more"):
        choose_spec(CreateRequest(network=NetworkPolicy.FULL), DEFAULTS, only_none)
    default = replace(DEFAULTS, default_network=ALLOW)
    assert choose_spec(CreateRequest(), default, only_none).network == ALLOW


@pytest.mark.parametrize("policy", [NetworkPolicy.NONE, NetworkPolicy.FULL, ALLOW])
def test_a_row_keeps_its_policy(policy: NetworkPolicy) -> None:
    able = Capabilities(isolation=True, networks=frozenset(Network))
    spec = choose_spec(CreateRequest(network=policy), DEFAULTS, able)
    assert SessionSpec.from_json(spec.to_json()) == spec
