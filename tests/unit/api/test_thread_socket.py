"""Both directions of a thread's WebSocket: what takes long holds nobody up, and messages keep their order."""

import asyncio
import json
from typing import Any

import pytest
from starlette.websockets import WebSocketDisconnect

from holdfast.api.threads.events import MAX_UNDER_WAY, ThreadSocket
from holdfast.errors import HoldfastError, ThreadNotFound
from holdfast.threads.names import ThreadRef

pytestmark = pytest.mark.anyio


class Socket:
    def __init__(self) -> None:
        self.scope: dict[str, str] = {}
        self._coming: asyncio.Queue[str | None] = asyncio.Queue()
        self._told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def ask(self, **request: object) -> None:
        self._coming.put_nowait(json.dumps(request))

    def hang_up(self) -> None:
        self._coming.put_nowait(None)

    async def receive_text(self) -> str:
        text = await self._coming.get()
        if text is None:
            raise WebSocketDisconnect
        return text

    async def send_text(self, text: str) -> None:
        self._told.put_nowait(json.loads(text))

    async def heard(self) -> dict[str, Any]:
        async with asyncio.timeout(30):
            return await self._told.get()


class Slow:
    """A thread service whose diffs take for ever."""

    def __init__(self) -> None:
        self.commands = self

    async def events(self, *_args: object, **_more: object) -> None:
        raise ThreadNotFound("it is new")

    async def diff(self, *_args: object, **_more: object) -> None:
        await asyncio.Event().wait()

    async def abort(self, *_args: object, **_more: object) -> None:
        return None

    async def send(self, *_args: object, **_more: object) -> None:
        raise HoldfastError("not now")


async def test_an_abort_does_not_wait_for_a_diff() -> None:
    socket = Socket()
    talk = asyncio.create_task(ThreadSocket(socket, Slow(), ThreadRef("ann", "a")).run(0))  # type: ignore[arg-type]  # as much of them as it takes
    socket.ask(diff={}, ref=1)
    socket.ask(abort={}, ref=2)
    assert await socket.heard() == {"aborted": None, "ref": 2}
    socket.hang_up()
    async with asyncio.timeout(30):
        await talk


async def test_only_so_many_at_once() -> None:
    socket = Socket()
    talk = asyncio.create_task(ThreadSocket(socket, Slow(), ThreadRef("ann", "a")).run(0))  # type: ignore[arg-type]  # as above
    for number in range(MAX_UNDER_WAY + 1):
        socket.ask(diff={}, ref=number)
    refused = await socket.heard()
    assert (refused["ref"], refused["error"]["code"]) == (MAX_UNDER_WAY, "conflict")
    socket.ask(send={"id": "m1", "text": "x"}, ref="sent")
    assert (await socket.heard())["ref"] == "sent"
    socket.hang_up()
    async with asyncio.timeout(30):
        await talk
