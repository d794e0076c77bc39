"""The routes of threads on a real thread service, with sandboxes and agents that do what the test says."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from holdfast.api import ApiSettings
from holdfast.vocabulary.turn_events import Kind
from support.api_host import serving
from support.threads.threads import FakeSite, ThreadDaemon

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def http_of(site: FakeSite, daemon: ThreadDaemon) -> AsyncIterator[httpx2.AsyncClient]:
    async with serving(site, daemon, ApiSettings(max_content_bytes=4096)) as host, host.client() as client:
        yield client


@pytest.fixture
async def http(site: FakeSite) -> AsyncIterator[httpx2.AsyncClient]:
    async with site.daemon() as daemon, http_of(site, daemon) as client:
        yield client


def code(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


async def test_options_go_in_and_come_out(http: httpx2.AsyncClient) -> None:
    options = {
        "model": "fake-2",
        "model_preferences": ["demo/a", "demo/b"],
        "allowed_models": ["demo/*"],
        "limits": {"cpus": 0.5, "memory_mb": 64, "spend_usd": 2.5},
        "permissions": ["allow bash:git push*"],
        "network": "none",
        "env": {"A": "1"},
        "metadata": {"customer": "ada", "thread": "mine"},
        "system_prompt": "be kind",
        "retry_broken_streams": True,
        "preview_port": 3000,
        "idle": {"pause_after_seconds": 60, "destroy_after_seconds": None},
    }
    body = {"id": "m1", "text": "say x", "options": options}
    sent = await http.post("/v1/threads/a/messages", json=body, params={"wait": 30})
    assert sent.status_code == 202, sent.text
    assert sent.json()["turn"]["reason"] == "end_turn"
    view = (await http.get("/v1/threads/a")).json()
    assert view["options"] == {
        "agent": None,
        "image": None,
        "model": "fake-2",
        "model_preferences": ["demo/a", "demo/b"],
        "allowed_models": ["demo/*"],
        "limits": {"requests_per_minute": None, "tokens_per_minute": None, "spend_usd": 2.5},
        "permissions": ["allow bash:git push*"],
        "cpus": 0.5,
        "memory_mb": 64,
        "pids": None,
        "disk_mb": None,
        "network": "none",
        "env": {"A": "1"},
        "metadata": {"customer": "ada", "thread": "mine"},
        "repo": None,
        "persona": None,
        "system_prompt": "be kind",
        "retry_broken_streams": True,
        "preview_port": 3000,
        "idle": {"pause_after_seconds": 60, "hibernate_after_seconds": 10800, "destroy_after_seconds": None},
    }
    session = (await http.get(f"/v1/sessions/{view['session_id']}")).json()
    assert session["metadata"] == {"customer": "ada", "thread": "a"}
    assert (view["channel"], view["resumed_at"], view["destroyed_at"]) == ("default", None, None)
    assert view["healthy_at"].endswith("Z") and view["healthy_at"] >= view["created_at"]
    resolved = await http.post("/v1/threads/a/resolve", json={"options": {"model": "fake-1"}})
    assert (resolved.json()["how"], resolved.json()["thread"]["options"]["model"]) == ("reused", "fake-1")


async def test_options_that_cannot_be_are_refused_before_anything_is_made(http: httpx2.AsyncClient) -> None:
    wrong: list[dict[str, object]] = [
        {"permissions": ["perhaps bash"]},
        {"persona": ["soul.md"]},
        {"repo": {"url": "https://me:pa55word@example.com/x"}},
        {"limits": {"spend_usd": -1}},
        {"allowed_models": ["a/?"]},
    ]
    for options in wrong:
        for path, body in (("resolve", {}), ("messages", {"id": "m1", "text": "hi"})):
            found = await http.post(f"/v1/threads/a/{path}", json={**body, "options": options})
            assert code(found) == (422, "bad_input"), options
            assert "pa55word" not in found.text
    assert code(await http.get("/v1/threads/a")) == (404, "thread_not_found")


async def test_a_message_says_from_where_on_to_follow_it(http: httpx2.AsyncClient) -> None:
    for number in (1, 2):
        body = {"id": f"m{number}", "text": "say x"}
        sent = (await http.post("/v1/threads/a/messages", json=body, params={"wait": 30})).json()
        after = sent["message"]["after"]
        page = (await http.get("/v1/threads/a/events", params={"after": after, "limit": 1})).json()
        (first,) = page["events"]
        assert (first["kind"], first["data"]["message_id"]) == (Kind.MESSAGE_CREATE, f"m{number}")
        assert page["next"] == after + 1
        assert (await http.post("/v1/threads/a/messages", json=body)).json() == sent
        assert (await http.get(f"/v1/threads/a/messages/m{number}")).json() == sent["message"]
        assert (await http.get(f"/v1/threads/a/turns/{sent['turn']['id']}")).json() == sent["turn"]


async def test_pages(http: httpx2.AsyncClient) -> None:
    for number in range(5):
        await http.post(f"/v1/threads/t:{number}/files", params={"name": "x"}, content=b"x")
        await http.post("/v1/threads/t:0/messages", json={"id": f"m{number}", "text": "say x"}, params={"wait": 30})
    for path, what in (("/v1/threads", "threads"), ("/v1/threads/t:0/messages", "messages")):
        found, cursor = [], None
        while True:
            params = {"limit": "2"} if cursor is None else {"limit": "2", "cursor": cursor}
            page = (await http.get(path, params=params)).json()
            found += [one.get("key") or one["id"] for one in page[what]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert len(found) == len(set(found)) == 5
    for cursor in ("x", "1", "nan:thr_1;", "9" * 30):
        assert code(await http.get("/v1/threads/t:0/messages", params={"cursor": cursor + "x"})) == (422, "bad_input")
        assert code(await http.get("/v1/threads", params={"cursor": cursor})) == (422, "bad_input")


async def test_what_there_is_not(http: httpx2.AsyncClient) -> None:
    assert (await http.delete("/v1/threads/none")).status_code == 204
    for verb in ("abort", "revert", "pause"):
        assert code(await http.post(f"/v1/threads/none/{verb}")) == (404, "thread_not_found")
    await http.post("/v1/threads/a/files", params={"name": "x"}, content=b"x")
    assert (await http.post("/v1/threads/a/abort")).json() == {"turn": None}
    assert code(await http.get("/v1/threads/a/turns/a%20b")) == (404, "turn_not_found")
    assert code(await http.get("/v1/threads/a/artifacts/a%20b")) == (404, "file_not_found")
    assert code(await http.post("/v1/threads/a/questions/q/answer", json={"answer": "x"})) == (404, "not_found")
    attached = {"id": "m", "text": "x", "attachments": ["fil_none"]}
    assert code(await http.post("/v1/threads/a/messages", json=attached)) == (404, "file_not_found")


async def test_a_file_may_be_larger_than_a_message(http: httpx2.AsyncClient) -> None:
    large = b"x" * 10_000
    message = {"id": "m", "text": large.decode()}
    assert code(await http.post("/v1/threads/a/messages", json=message)) == (413, "too_large")
    made = await http.post("/v1/threads/a/files", params={"name": "x"}, content=large)
    assert (made.status_code, made.json()["size"]) == (201, 10_000)
    got = await http.get(f"/v1/threads/a/artifacts/{made.json()['id']}")
    assert got.content == large


async def test_a_file_that_is_too_large_leaves_nothing(site: FakeSite) -> None:
    async with site.daemon(max_file_bytes=1000) as daemon, http_of(site, daemon) as http:
        refused = await http.post("/v1/threads/a/files", params={"name": "x"}, content=b"x" * 1001)
        assert code(refused) == (413, "too_large")
        assert (await http.get("/v1/threads/a/files")).json() == {"files": []}
        assert not [path for path in Path(site.root / "files").rglob("*") if path.is_file()]


async def test_a_wait_that_is_over_answers_all_the_same(http: httpx2.AsyncClient) -> None:
    body = {"id": "m1", "text": "wait-for /never"}
    sent = (await http.post("/v1/threads/a/messages", json=body, params={"wait": 2})).json()
    assert sent["message"]["status"] in ("queued", "in_turn")
    assert code(await http.post("/v1/threads/a/pause")) in ((409, "conflict"), (409, "wrong_state"))
    assert (await http.post("/v1/threads/a/abort")).status_code == 200
    again = (await http.post("/v1/threads/a/messages", json=body, params={"wait": 30})).json()
    assert (again["message"]["id"], again["turn"]["reason"]) == ("m1", "canceled")
