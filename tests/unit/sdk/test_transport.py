"""What the client does when the network, or what stands in it, misbehaves."""

from collections.abc import Callable

import httpx2
import pytest

from holdfast import errors
from holdfast.sdk import Client

pytestmark = pytest.mark.anyio

RESULT = {
    "exec_id": "e",
    "exit_code": 0,
    "cwd": "/",
    "output": "",
    "stdout": "",
    "stderr": "",
    "truncated": False,
    "timed_out": False,
    "duration_ms": 1,
    "shell_restarted": False,
    "field_of_a_newer_daemon": 1,
}
SESSION = {
    "id": "ses_1",
    "status": "active",
    "reason": None,
    "error": None,
    "image": "host",
    "driver": "fake",
    "cwd": "/",
    "limits": {"cpus": 1, "memory_mb": 1, "pids": 1, "disk_mb": 1},
    "network": "none",
    "writable_root": False,
    "metadata": {},
    "ttl_seconds": 1,
    "created_at": "2026-01-01T00:00:00.000000Z",
    "expires_at": "2026-01-01T00:00:00.000000Z",
    "last_activity_at": "2026-01-01T00:00:00.000000Z",
}


def talking_to(handler: Callable[[httpx2.Request], httpx2.Response], retries: int = 3) -> Client:
    def route(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json=SESSION) if request.url.path == "/v1/sessions/ses_1" else handler(request)

    return Client("http://daemon", "key", retries=retries, transport=httpx2.MockTransport(route))


async def test_a_reset_is_retried_under_the_same_key() -> None:
    keys = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        keys.append(request.headers["idempotency-key"])
        if len(keys) < 3:
            raise httpx2.ReadError("reset")
        return httpx2.Response(200, json=RESULT)

    async with talking_to(handler) as client:
        session = await client.get_session("ses_1")
        await session.exec("true")
        assert len(keys) == 3
        assert len(set(keys)) == 1
        await session.exec("true")
        assert keys[3] != keys[0]
        await session.exec("true", idempotency_key="mine")
        assert keys[4] == "mine"


async def test_retries_end() -> None:
    calls = 0

    def handler(request: httpx2.Request) -> httpx2.Response:
        nonlocal calls
        calls += 1
        raise httpx2.ConnectError("refused")

    async with talking_to(handler, retries=2) as client:
        with pytest.raises(errors.Unavailable, match=r"no daemon answers at http://daemon .*holdfast up"):
            await client.list_sessions()
    assert calls == 3


async def test_a_write_is_not_sent_twice() -> None:
    calls = 0

    def handler(request: httpx2.Request) -> httpx2.Response:
        nonlocal calls
        calls += 1
        raise httpx2.ReadError("reset")

    async with talking_to(handler) as client:
        session = await client.get_session("ses_1")
        with pytest.raises(errors.Unavailable, match="broke"):
            await session.write("/x", b"")
    assert calls == 1


async def test_exec_waits_as_long_as_the_command_may_take_and_no_longer() -> None:
    seen = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.extensions["timeout"]["read"])
        raise httpx2.ReadTimeout("slow")

    async with talking_to(handler) as client:
        session = await client.get_session("ses_1")
        for timeout in (1000, 100_000, None):
            with pytest.raises(errors.Unavailable, match="did not answer within"):
                await session.exec("true", timeout_ms=timeout)
    assert seen == [151, 250, 750]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (httpx2.Response(404, text="<html>not ours</html>"), errors.HoldfastError),
        (httpx2.Response(500, json=["odd"]), errors.HoldfastError),
        (httpx2.Response(504, text="gateway"), errors.Unavailable),
        (httpx2.Response(418, json={"error": {"code": "teapot", "message": "new"}}), errors.HoldfastError),
        (httpx2.Response(302, headers={"location": "http://elsewhere"}), errors.HoldfastError),
    ],
)
async def test_answers_that_are_not_the_daemons(reply: httpx2.Response, kind: type[errors.HoldfastError]) -> None:
    async with talking_to(lambda _: reply, retries=0) as client:
        with pytest.raises(kind) as caught:
            await client.list_sessions()
        assert caught.value.status == reply.status_code
