"""The short way for an exec answers as the long way does, whatever comes in.

``application/json; charset=utf-8`` means the same as ``application/json`` and is not plain: it takes the long way.
"""

import asyncio
import json
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from starlette.types import Message

from fakes.api_server import KEY
from fakes.key_store import key_ring
from fakes.session_service import FakeSessions
from holdfast.api import ApiSettings, create_app
from holdfast.api.exec.models import ExecOut
from holdfast.errors import SandboxLost
from holdfast.sessions.types import ExecResult

SHORT, LONG = "application/json", "application/json; charset=utf-8"

VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800") | st.just("/tmp")
BODIES = st.dictionaries(
    st.sampled_from(["cmd", "timeout_ms", "stdin", "env", "cwd", "shell", "body", "other"]),
    VALUES | st.dictionaries(st.text(max_size=3), VALUES, max_size=2) | st.just("echo é"),
).map(lambda fields: json.dumps(fields).encode())


service = FakeSessions()
the_app = create_app(service, keys=key_ring("key"), settings=ApiSettings(max_content_bytes=1000))


async def ask(
    body: bytes, kind: str, path: str = "ses_00000000", *, fail: Exception | None = None, **headers: str
) -> tuple[int, Any, object]:
    """Status, reply without what is new each time, and what the service was asked for."""
    service.__init__()  # type: ignore[misc]  # as new: to build the app again takes longer than the question
    transport = httpx2.ASGITransport(the_app, client=("127.0.0.1", 5000))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        key = {"authorization": "Bearer key"}
        assert (await client.post("/v1/sessions", headers=key)).status_code == 201
        service.fail = fail
        sent = {**key, "content-type": kind, **headers}
        response = await client.post(f"/v1/sessions/{path}/exec", content=body, headers=sent)
    reply = response.json()
    reply.get("error", {}).pop("request_id", None)
    for new in ("exec_id", "duration_ms"):
        reply.pop(new, None)
    return response.status_code, reply, service.last_exec


async def same(body: bytes, **options: Any) -> tuple[int, Any, object]:
    by_the_short, by_the_long = await ask(body, SHORT, **options), await ask(body, LONG, **options)
    assert by_the_short == by_the_long
    return by_the_short


@settings(max_examples=150, deadline=None)
@given(BODIES | st.binary(max_size=40) | st.builds(str.encode, st.text(), st.sampled_from(["utf-16", "utf-8-sig"])))
def test_any_body(body: bytes) -> None:
    asyncio.run(same(body))


@pytest.mark.anyio
async def test_what_is_plain_and_what_is_not() -> None:
    good = json.dumps({"cmd": "echo é", "timeout_ms": 5, "env": {"A": "b"}, "cwd": "/", "shell": "x"}).encode()
    assert (await same(good))[0] == 200
    assert (await same(good.decode().encode("utf-16")))[0] == 200
    assert (await same(good, path="no%00"))[0] == 404
    assert (await same(good, path="ses_none"))[0] == 404
    assert (await same(good, **{"Idempotency-Key": "one"}))[0] == 200
    assert (await same(good, **{"Idempotency-Key": "not good"}))[0] == 422
    assert (await same(good, fail=SandboxLost("gone")))[0] == 502
    assert (await same(good, fail=RuntimeError("a bug")))[0] == 500
    assert (await same(b'{"cmd":"%s"}' % (b"x" * 2000)))[0] == 413


@pytest.mark.anyio
async def test_the_reply_is_as_documented() -> None:
    result = ExecResult("exe_1", 7, "/é", b"a\xff", b"a", b"\xff", True, False, False, 12, True)
    reply = b"".join(await ExecOut.json_of(result))
    fields = ExecOut.model_validate_json(reply, strict=True).model_dump()
    assert fields.keys() == json.loads(reply).keys()
    assert (fields["exit_code"], fields["cwd"], fields["output"], fields["stderr"]) == (7, "/é", "a�", "�")


@pytest.mark.anyio
async def test_bodies_in_parts_and_clients_that_leave(
    app: FastAPI, session_id: str, sessions: FakeSessions, registry: CollectorRegistry
) -> None:
    async def request(*incoming: Message) -> list[Message]:
        waiting, sent = list(incoming), []
        headers = [(b"authorization", b"Bearer " + KEY.encode()), (b"content-type", b"application/json")]
        path = f"/v1/sessions/{session_id}/exec"
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}

        async def receive() -> Message:
            return waiting.pop(0)

        async def send(message: Message) -> None:
            sent.append(message)

        await app(scope, receive, send)
        return sent

    first = {"type": "http.request", "body": b'{"cmd":', "more_body": True}
    sent = await request(first, {"type": "http.request", "body": b'"echo hi"}'})
    assert sent[0]["status"] == 200
    assert json.loads(sent[1]["body"])["stdout"] == "hi\n"
    assert await request(first, {"type": "http.disconnect"}) == []
    assert sessions.exec_count == 1
    for status in ("200", "499"):
        labels = {"method": "POST", "route": "/v1/sessions/{session_id}/exec", "status": status}
        assert registry.get_sample_value("holdfast_http_requests_total", labels) == 1, f"under its route, {status}"
