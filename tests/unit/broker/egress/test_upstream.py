"""From a name to a connection: every address is checked, and what is connected to is what was checked."""

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Sequence

import pytest

from holdfast.broker.egress import upstream as upstreams
from holdfast.broker.egress.addresses import PrivateHosts
from holdfast.broker.egress.upstream import EgressRefused, EgressUnreachable, EgressUpstream
from holdfast.records.host_pattern import Address, normalised_host
from holdfast.records.network import NetworkPolicy

pytestmark = pytest.mark.anyio
LOOPBACK = PrivateHosts.parse(["127.0.0.0/8"])


class Names:
    """A name server that gives each answer once, and the last one for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, _host: str) -> Sequence[Address]:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [ipaddress.ip_address(text) for text in answer]


@contextlib.asynccontextmanager
async def listening(host: str) -> AsyncIterator[int]:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, host, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def allowing(*patterns: str) -> NetworkPolicy:
    return NetworkPolicy.allowing(patterns)


async def test_a_name_that_changes_its_mind_gains_nothing() -> None:
    """Public when it is checked, loopback when it would be looked up again: it is not looked up again."""
    async with listening("127.0.0.1") as port:
        names = Names(["127.0.0.2"], ["127.0.0.1"])
        out = EgressUpstream(PrivateHosts.parse(["127.0.0.2"]), names)
        with pytest.raises(EgressUnreachable):  # nobody listens at the address that was checked
            await out.connect(allowing(f"evil.example:{port}"), "evil.example", port)
        assert names.asked == 1
        with pytest.raises(EgressRefused, match=r"127\.0\.0\.1"):
            await out.connect(allowing(f"evil.example:{port}"), "evil.example", port)


async def test_one_bad_address_spoils_the_name() -> None:
    for answer in (["8.8.8.8", "10.0.0.1"], ["::ffff:127.0.0.1"], ["8.8.8.8", "64:ff9b::169.254.169.254"], ["fe80::1"]):
        with pytest.raises(EgressRefused):
            await EgressUpstream(PrivateHosts(), Names(answer)).connect(allowing("a.example"), "a.example", 443)


async def test_only_what_is_in_the_list_is_even_looked_up() -> None:
    names = Names(["127.0.0.1"])
    out = EgressUpstream(LOOPBACK, names)
    for host, port in (("b.example", 443), ("a.example", 8080), ("127.0.0.1", 443)):
        with pytest.raises(EgressRefused, match="not in the allow list"):
            await out.connect(allowing("a.example"), host, port)
    assert names.asked == 0


@pytest.mark.parametrize("name", ["metadata.google.internal", "metadata"])
async def test_metadata_names_are_refused_whatever_they_resolve_to(name: str) -> None:
    with pytest.raises(EgressRefused, match="metadata"):
        await EgressUpstream(LOOPBACK, Names(["8.8.8.8"])).connect(allowing("*.internal", name), name, 80)


async def test_literals_are_not_resolved() -> None:
    names = Names(["8.8.8.8"])
    for host in ("::1", normalised_host("::ffff:127.0.0.1"), "10.0.0.1"):
        with pytest.raises(EgressRefused, match="not a public address"):
            await EgressUpstream(PrivateHosts(), names).connect(allowing(host), host, 80)
    assert names.asked == 0


async def test_a_dead_address_does_not_hide_a_living_one() -> None:
    async with listening("127.0.0.1") as port:
        out = EgressUpstream(LOOPBACK, Names(["127.0.0.3", "127.0.0.1"]))
        _reader, writer = await out.connect(allowing(f"a.example:{port}"), "a.example", port)
        assert writer.get_extra_info("peername")[0] == "127.0.0.1"
        writer.close()


async def test_names_that_do_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_host: str) -> Sequence[Address]:
        await asyncio.Event().wait()
        return []

    async def fails(_host: str) -> Sequence[Address]:
        raise OSError(2, "Name or service not known")

    monkeypatch.setattr(upstreams, "RESOLVE_SECONDS", 0.02)
    for resolve, why in ((never, "within"), (fails, "not known"), (Names([]), "no address")):
        with pytest.raises(EgressUnreachable, match=why):
            await EgressUpstream(PrivateHosts(), resolve).connect(allowing("a.example"), "a.example", 80)
