"""The edge itself: keys, loopback, request ids, metrics, the documentation."""

import asyncio
import re
from typing import Any

import httpx2
import pytest

from holdfast.api.wire.patterns import WORDS
from support.api_host import KEY, ApiHost, scopes

pytestmark = pytest.mark.anyio
BEARER = b"Bearer " + KEY.encode()


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer wrong",
        b"Basic " + KEY.encode(),
        KEY.encode(),
        b"Bearer \xff\xfe",
        b"Bearer " + KEY.encode()[:-1],
        b"Bearer " + KEY.encode() + b"x",
        "Bearer ключ".encode(),
    ],
)
@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/nope", "/v1", "/v1/sessions/ses_1/exec"])
async def test_no_key_no_entry(stranger: httpx2.AsyncClient, path: str, header: bytes | None) -> None:
    headers = {} if header is None else {b"authorization": header}
    response = await stranger.get(path, headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["error"]["code"] == "unauthorized"
    assert response.json()["error"]["request_id"] == response.headers["x-request-id"]


async def test_the_key_opens(stranger: httpx2.AsyncClient) -> None:
    for header in (BEARER, BEARER.replace(b"Bearer", b"bearer")):
        assert (await stranger.get("/v1/sessions", headers={b"authorization": header})).status_code == 200
    twice = [(b"authorization", BEARER), (b"authorization", b"Bearer wrong")]
    assert (await stranger.get("/v1/sessions", headers=twice)).status_code == 401


@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
async def test_open_on_loopback_only(host: ApiHost, path: str) -> None:
    async def status(peer: str, name: str, *extra: tuple[bytes, bytes]) -> int:
        transport = httpx2.ASGITransport(host.app, client=(peer, 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://x") as client:
            return (await client.get(path, headers=[(b"host", name.encode()), *extra])).status_code

    for peer in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"):
        for name in ("localhost", "localhost:8080", "127.0.0.1:8080", "[::1]", "[::1]:8080", "LOCALHOST"):
            assert await status(peer, name) == 200, (peer, name)
    for peer in ("10.0.0.1", "::2", "", "testclient"):
        assert await status(peer, "localhost") == 401, peer
    for name in ("example.org", "example.org:8080", "localhost.example.org", "127.0.0.1.nip.io", ""):
        assert await status("127.0.0.1", name) == 401, name
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "X-Forwarded-Host", "Via", "CF-Connecting-IP"):
        assert await status("127.0.0.1", "localhost", (header.encode(), b"127.0.0.1")) == 401, header
    assert await status("10.0.0.1", "example.org", (b"authorization", BEARER)) == 200


async def test_request_ids(client: httpx2.AsyncClient) -> None:
    for path in ("/v1/sessions", "/nope", "/healthz", "/docs", "/v1/sessions/ses_x"):
        assert re.fullmatch(r"req_[0-9a-f]{16}", (await client.get(path)).headers["x-request-id"])
    sane = await client.get("/nope", headers={"X-Request-Id": "abc-1.2:3"})
    assert sane.headers["x-request-id"] == sane.json()["error"]["request_id"] == "abc-1.2:3"
    for bad in ("x" * 65, "a b", "a\tb", "<script>", ""):
        assert (await client.get("/nope", headers={"X-Request-Id": bad})).headers["x-request-id"].startswith("req_")


async def test_one_log_line_per_request(
    client: httpx2.AsyncClient, session_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    await client.get(f"/v1/sessions/{session_id}", headers={"X-Request-Id": "mine"})
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 1
    plain = re.sub(r"\x1b\[[0-9;]*m", "", lines[0])
    for part in ("method=GET", "route=/v1/sessions/{session_id}", "status=200", "request_id=mine", session_id):
        assert part in plain


async def test_metrics(client: httpx2.AsyncClient, session_id: str, host: ApiHost) -> None:
    route = "/v1/sessions/{session_id}"
    counted = [("GET", route, "200"), ("GET", "-", "404"), ("OTHER", "-", "404")]

    def counts() -> list[float]:
        names = [dict(zip(("method", "route", "status"), one, strict=True)) for one in counted]
        return [host.registry.get_sample_value("holdfast_http_requests_total", one) or 0 for one in names]

    def timed() -> float:
        labels = {"method": "GET", "route": route}
        return host.registry.get_sample_value("holdfast_http_request_seconds_count", labels) or 0

    before, timed_before = counts(), timed()
    await client.get(f"/v1/sessions/{session_id}")
    for n in range(3):
        await client.get(f"/nope/{n}")
    await client.request("BREW", "/nope")
    assert [after - was for after, was in zip(counts(), before, strict=True)] == [1, 3, 1]
    text = (await client.get("/metrics")).text
    for method, path, status in counted:
        assert f'holdfast_http_requests_total{{method="{method}",route="{path}",status="{status}"}}' in text
    assert timed() == timed_before + 1


async def test_health(stranger: httpx2.AsyncClient) -> None:
    assert (await stranger.get("/healthz")).json()["status"] == "ok"


def patterns_in(schema: object) -> set[str]:
    if isinstance(schema, list):
        return set().union(*(patterns_in(one) for one in schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["pattern"]} if isinstance(schema.get("pattern"), str) else set()
    return own.union(*(patterns_in(one) for one in schema.values()))


async def test_every_pattern_has_words(host: ApiHost, client: httpx2.AsyncClient) -> None:
    checked_by_hand = {r"^/[^\x00]*$"}  # paths
    found = patterns_in(host.app.openapi()) - checked_by_hand
    assert found and found - set(WORDS) == set()
    refused = (await client.post("/v1/sessions", json={"workspace": "a b"})).json()["error"]["message"]
    assert refused == "workspace: must be 1 to 63 letters, digits and . _ - (the first a letter or a digit)"


async def test_openapi_is_complete(stranger: httpx2.AsyncClient) -> None:
    schema = (await stranger.get("/openapi.json")).json()
    found = {f"{verb.upper()} {path}" for path, verbs in schema["paths"].items() for verb in verbs}
    hidden = {"GET /docs", "GET /openapi.json"}
    assert found == {route for route in scopes() if not route.startswith("WS ")} - hidden
    one = "/v1/sessions/{session_id}"
    for path, verbs in schema["paths"].items():
        for operation in verbs.values():
            assert operation["summary"]
            replies: dict[str, Any] = operation["responses"]
            assert "401" in replies and "403" in replies
            for status in (status for status in replies if status >= "400"):
                ref = replies[status]["content"]["application/json"]["schema"]["$ref"]
                assert ref.endswith("/ErrorReply"), (path, status)
            assert ("security" in operation) == (path.startswith("/v1/") and not path.startswith("/v1/files/"))
            if "requestBody" in operation:
                contents = operation["requestBody"]["content"]
                assert contents and all(content["schema"] for content in contents.values())
                assert "application/json" in contents or operation["operationId"].startswith(
                    ("upload", "unpack", "linked")
                )
    write = schema["paths"][f"{one}/fs/write"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"path", "content", "content_base64", "mode"} <= set(write["properties"])


async def test_docs_need_nothing_from_outside(stranger: httpx2.AsyncClient) -> None:
    response = await stranger.get("/docs")
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert "openapi.json" in response.text
    assert not re.search(r"https?://|src=|@import|//cdn", response.text)


async def test_a_daemon_that_stops_says_so(
    client: httpx2.AsyncClient, session_id: str, monkeypatch: pytest.MonkeyPatch, host: ApiHost
) -> None:
    """The server cancels what still runs when it stops; the client learns why, and that it may ask again."""
    running = asyncio.Event()

    async def endless(*_: object, **__: object) -> None:
        running.set()
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(host.sessions, "exec", endless)
    request = asyncio.create_task(client.post(f"/v1/sessions/{session_id}/exec", json={"cmd": "true"}))
    await running.wait()
    request.cancel()
    response = await request
    assert (response.status_code, response.json()["error"]["code"]) == (503, "unavailable")
    assert response.headers["retry-after"]
