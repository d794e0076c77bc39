"""Connections into sandboxes: each counts as one at its port for as long as it is used, and no longer."""

import asyncio
from dataclasses import dataclass
from typing import Any, cast

import pytest

from holdfast.errors import NothingListens
from holdfast.gateway.addresses import SessionAddress
from holdfast.gateway.admission import Visitor
from holdfast.gateway.proxy.upstream import PortConnections
from holdfast.sessions.session import Session
from holdfast.sessions.use.ports import Ports, PortUse

pytestmark = pytest.mark.anyio

PLACE = SessionAddress("3000", "ses_1")
VISITOR = Visitor("3000", "key:1")


@dataclass
class Stub:
    id: str = "ses_1"


class Loopback:
    """Ports of a sandbox: those of this machine."""

    def __init__(self) -> None:
        self.use = PortUse()

    async def connect(self, _session: object, port: int) -> Any:
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            raise NothingListens from None


async def test_a_connection_counts_while_it_is_used() -> None:
    ports, session = Loopback(), cast(Session, Stub())
    upstreams = PortConnections(cast(Ports, ports), 10)

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        one = await upstreams.open(session, port, PLACE, VISITOR)
        other = await upstreams.open(session, port, PLACE, VISITOR)
        assert ports.use.is_open("ses_1", port)
        upstreams.keep(one)
        assert one in upstreams and ports.use.is_open("ses_1", port), "the other one is still used"
        upstreams.close(other)
        upstreams.close(other)
        assert not ports.use.is_open("ses_1", port), "one that is only kept does not count"
        assert await upstreams.open(session, port, PLACE, VISITOR) is one
        assert ports.use.is_open("ses_1", port)
        upstreams.close(one)
        assert not ports.use.is_open("ses_1", port)
        upstreams.close_all()


async def test_one_that_is_refused_does_not_count() -> None:
    ports, session = Loopback(), cast(Session, Stub())
    upstreams = PortConnections(cast(Ports, ports), 10)
    with pytest.raises(NothingListens):
        await upstreams.open(session, 1, PLACE, VISITOR)
    assert not ports.use.is_open("ses_1", 1) and upstreams.in_use == set()
