"""Snapshots, forks and workspaces through the API: shapes, statuses, keys and who sees what."""

import httpx2
import pytest

from support.api_host import ApiHost
from support.waiting import until

pytestmark = pytest.mark.anyio


def code(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


async def test_a_snapshot_from_beginning_to_end(client: httpx2.AsyncClient, session_id: str) -> None:
    made = await client.post(f"/v1/sessions/{session_id}/snapshots", json={"name": "base"})
    assert made.status_code == 201, made.text
    view = made.json()
    assert made.headers["location"] == f"/v1/snapshots/{view['id']}"
    assert view | {"id": "", "created_at": ""} == {
        "id": "",
        "name": "base",
        "owner": "root",
        "status": "ready",
        "kind": "files",
        "session_id": session_id,
        "image": "host",
        "driver": "fake",
        "limits": {"cpus": 1.0, "memory_mb": 512, "pids": 256, "disk_mb": 1024},
        "writable_root": False,
        "size_bytes": view["size_bytes"],
        "created_at": "",
    }
    assert (await client.get("/v1/snapshots")).json() == {"snapshots": [view]}
    for reference in ("base", view["id"]):
        assert (await client.get(f"/v1/snapshots/{reference}")).json() == view
    started = (await client.post("/v1/sessions", json={"snapshot": "base"})).json()
    assert started["snapshot_id"] == view["id"]
    assert (await client.delete("/v1/snapshots/base")).status_code == 204
    assert code(await client.delete("/v1/snapshots/base")) == (404, "snapshot_not_found")


async def test_names_and_bodies(client: httpx2.AsyncClient, session_id: str) -> None:
    path = f"/v1/sessions/{session_id}/snapshots"
    nameless = (await client.post(path)).json()
    assert nameless["name"] == nameless["id"]
    for wrong in ({"name": "a/b"}, {"name": ""}, {"name": "x\n"}, {"name": 1}, {"other": "x"}):
        assert code(await client.post(path, json=wrong)) == (422, "bad_input")
    for wrong in ({"workspace": "a/b"}, {"workspace": "-"}, {"snapshot": ""}):
        assert code(await client.post("/v1/sessions", json=wrong)) == (422, "bad_input")
    assert code(await client.post("/v1/sessions/ses_none/snapshots")) == (404, "session_not_found")


async def test_the_key_of_a_snapshot_and_of_a_fork(client: httpx2.AsyncClient, session_id: str) -> None:
    for verb in ("snapshots", "fork"):
        answers = [
            (await client.post(f"/v1/sessions/{session_id}/{verb}", headers={"Idempotency-Key": verb})).json()
            for _ in range(2)
        ]
        assert answers[0]["id"] == answers[1]["id"]
        wrong = await client.post(f"/v1/sessions/{session_id}/{verb}", headers={"Idempotency-Key": "a b"})
        assert code(wrong) == (422, "bad_input")


async def test_a_fork(client: httpx2.AsyncClient, session_id: str) -> None:
    made = await client.post(f"/v1/sessions/{session_id}/fork", json={"metadata": {"a": "b"}, "ttl_seconds": 5})
    assert made.status_code == 201, made.text
    copy = made.json()
    assert made.headers["location"] == f"/v1/sessions/{copy['id']}"
    assert (copy["restored"], copy["forked_from"], copy["ttl_seconds"]) == ("files", session_id, 5)
    assert copy["metadata"] == {"a": "b"}
    assert (await client.post(f"/v1/sessions/{session_id}/fork")).status_code == 201
    assert code(await client.post(f"/v1/sessions/{session_id}/fork", json={"image": "x"})) == (422, "bad_input")


async def test_workspaces(client: httpx2.AsyncClient) -> None:
    made = (await client.post("/v1/sessions", json={"workspace": "home"})).json()
    assert made["workspace"] == "home"
    [view] = (await client.get("/v1/workspaces")).json()["workspaces"]
    assert (view["name"], view["session_id"], view["disk_mb"], view["size_bytes"]) == ("home", made["id"], 1024, 4096)
    assert code(await client.delete("/v1/workspaces/home")) == (409, "conflict")
    await client.delete(f"/v1/sessions/{made['id']}")
    assert (await client.delete("/v1/workspaces/home")).status_code == 204
    assert code(await client.delete("/v1/workspaces/home")) == (404, "workspace_not_found")


async def test_only_restore_brings_back_the_dead(client: httpx2.AsyncClient, host: ApiHost, session_id: str) -> None:
    await host.driver.kill(session_id)

    async def is_dead() -> bool:
        return bool((await client.get(f"/v1/sessions/{session_id}")).json()["status"] == "error")

    await until(is_dead, "the crash is noticed")
    answer = (await client.post(f"/v1/sessions/{session_id}/restore")).json()
    assert (answer["status"], answer["restored"]) == ("active", "files")
