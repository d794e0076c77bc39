"""``holdfast forward``, where the port that it is to have is taken."""

import socket

import pytest

from holdfast.cli.sessions.forward import _ports
from holdfast.cli.sessions.forwarding import forward
from holdfast.errors import Conflict
from holdfast.sdk import Client
from support.api_host import running_api

pytestmark = pytest.mark.anyio


async def test_a_local_port_that_is_taken_is_named() -> None:
    with running_api() as api, socket.create_server(("127.0.0.1", 0)) as taken:
        async with Client(api.url, api.key) as client:
            session = await client.create_session()
            with pytest.raises(Conflict, match="is taken on this machine"):
                await forward(session, 3000, taken.getsockname()[1], "127.0.0.1", lambda *_: None)


def test_any_local_port_can_be_asked_for() -> None:
    assert _ports("0:3000") == (0, 3000)
    assert _ports("3000") == (None, 3000)
