"""The short way for an exec answers as the long way does, whatever comes in.

``application/json; charset=utf-8`` means the same as ``application/json`` and is not plain: it takes the long way.
"""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message

from holdfast.api import ApiSettings
from holdfast.api.exec.models import ExecOut
from holdfast.callers.types import ROOT
from holdfast.errors import SandboxLost
from holdfast.sessions.types import CreateRequest, ExecResult
from support.api_host import KEY, ApiHost, open_api

SHORT, LONG = "application/json", "application/json; charset=utf-8"

VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800") | st.just("/tmp")
BODIES = st.dictionaries(
    st.sampled_from(["cmd", "timeout_ms", "stdin", "env", "cwd", "shell", "body", "other"]),
    VALUES | st.dictionaries(st.text(max_size=3), VALUES, max_size=2) | st.just("echo é"),
).map(lambda fields: json.dumps(fields).encode())


@pytest.fixture(scope="module")
def lane() -> Iterator["Lane"]:
    """One host for all questions, in an event loop of its own."""
    with tempfile.TemporaryDirectory() as root, asyncio.Runner() as runner:
        opened = open_api(Path(root), ApiSettings(max_content_bytes=1000))
        host = runner.run(opened.__aenter__())
        session = runner.run(host.sessions.create(CreateRequest(), idempotency_key=None, caller=ROOT))
        with pytest.MonkeyPatch.context() as monkeypatch:
            yield Lane(runner, host, session.id, host.note(monkeypatch, "exec"))
        runner.run(opened.__aexit__(None, None, None))


@dataclass(frozen=True)
class Lane:
    runner: asyncio.Runner
    host: ApiHost
    session_id: str
    noted: list[tuple[tuple[object, ...], dict[str, object]]]

    async def ask(
        self, body: bytes, kind: str, path: str | None = None, *, fail: Exception | None = None, **headers: str
    ) -> tuple[int, Any, object]:
        """Status, reply without what is new each time, and what the service was asked for."""
        self.noted.clear()
        sent = {"content-type": kind, **headers}
        with pytest.MonkeyPatch.context() as monkeypatch:
            if fail is not None:
                self.host.fail(monkeypatch, "exec", fail)
            async with self.host.client() as client:
                url = f"/v1/sessions/{path or self.session_id}/exec"
                response = await client.post(url, content=body, headers=sent)
        reply = response.json()
        reply.get("error", {}).pop("request_id", None)
        for new in ("exec_id", "duration_ms"):
            reply.pop(new, None)
        return response.status_code, reply, list(self.noted)

    def same(self, body: bytes, **options: Any) -> int:
        """The status, which is the same by both ways, as everything else is."""
        by_the_short, by_the_long = (self.runner.run(self.ask(body, kind, **options)) for kind in (SHORT, LONG))
        assert by_the_short == by_the_long
        return by_the_short[0]


@settings(max_examples=150, deadline=None)
@given(BODIES | st.binary(max_size=40) | st.builds(str.encode, st.text(), st.sampled_from(["utf-16", "utf-8-sig"])))
def test_any_body(lane: Lane, body: bytes) -> None:
    lane.same(body)


def test_what_is_plain_and_what_is_not(lane: Lane) -> None:
    good = json.dumps({"cmd": "echo é", "timeout_ms": 5, "env": {"A": "b"}, "cwd": "/", "shell": "x"}).encode()
    assert lane.same(good) == 200
    assert lane.same(good.decode().encode("utf-16")) == 200
    assert lane.same(good, path="no%00") == 404
    assert lane.same(good, path="ses_none") == 404
    assert lane.same(good, **{"Idempotency-Key": "one"}) == 200
    assert lane.same(good, **{"Idempotency-Key": "not good"}) == 422
    assert lane.same(good, fail=SandboxLost("gone")) == 502
    assert lane.same(good, fail=RuntimeError("a bug")) == 500
    assert lane.same(b'{"cmd":"%s"}' % (b"x" * 2000)) == 413


@pytest.mark.anyio
async def test_the_reply_is_as_documented() -> None:
    result = ExecResult("exe_1", 7, "/é", b"a\xff", b"a", b"\xff", True, False, False, 12, True)
    reply = b"".join(await ExecOut.json_of(result))
    fields = ExecOut.model_validate_json(reply, strict=True).model_dump()
    assert fields.keys() == json.loads(reply).keys()
    assert (fields["exit_code"], fields["cwd"], fields["output"], fields["stderr"]) == (7, "/é", "a�", "�")


@pytest.mark.anyio
async def test_bodies_in_parts_and_clients_that_leave(host: ApiHost, session_id: str) -> None:
    def count(status: str) -> float:
        labels = {"method": "POST", "route": "/v1/sessions/{session_id}/exec", "status": status}
        return host.registry.get_sample_value("holdfast_http_requests_total", labels) or 0

    before = [count("200"), count("499")]

    async def request(*incoming: Message) -> list[Message]:
        waiting, sent = list(incoming), []
        headers = [(b"authorization", b"Bearer " + KEY.encode()), (b"content-type", b"application/json")]
        path = f"/v1/sessions/{session_id}/exec"
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}

        async def receive() -> Message:
            return waiting.pop(0)

        async def send(message: Message) -> None:
            sent.append(message)

        await host.app(scope, receive, send)
        return sent

    first = {"type": "http.request", "body": b'{"cmd":', "more_body": True}
    sent = await request(first, {"type": "http.request", "body": b'"echo hi"}'})
    assert sent[0]["status"] == 200
    assert json.loads(sent[1]["body"])["stdout"] == "hi\n"
    assert await request(first, {"type": "http.disconnect"}) == []
    assert host.commands(session_id) == 1
    assert [count("200"), count("499")] == [before[0] + 1, before[1] + 1], "both are counted under their route"
