"""Sessions and exec over HTTP: every field, and every status code that the API promises."""

import asyncio
import tarfile
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast import errors
from holdfast.sessions.types import ExecRequest
from support.api_host import USED, ApiHost, open_api

pytestmark = pytest.mark.anyio


def told(response: httpx2.Response) -> tuple[int, str]:
    error = response.json()["error"]
    assert set(error) == {"code", "message", "request_id"}
    assert error["message"]
    assert error["request_id"] == response.headers["x-request-id"]
    return response.status_code, error["code"]


async def test_create_gives_a_whole_session(client: httpx2.AsyncClient) -> None:
    wish = {
        "image": "host",
        "ttl_seconds": 60,
        "env": {"A": "1"},
        "limits": {"cpus": 0.5, "memory_mb": 64},
        "network": "none",
        "writable_root": True,
        "metadata": {"who": "me"},
    }
    response = await client.post("/v1/sessions", json=wish)
    assert response.status_code == 201
    session = response.json()
    assert response.headers["location"] == f"/v1/sessions/{session['id']}"
    assert session["limits"] == {"cpus": 0.5, "memory_mb": 64, "pids": 256, "disk_mb": 1024}
    assert session["metadata"] == {"who": "me"}
    assert session["writable_root"] is True
    for name in ("created_at", "expires_at", "last_activity_at"):
        assert session[name][-8] == "."
        assert session[name].endswith("Z")
    wanted = "id status reason image driver cwd limits network metadata created_at expires_at last_activity_at"
    assert set(wanted.split()) <= set(session)
    assert (await client.get(f"/v1/sessions/{session['id']}")).json() == session


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("none", "none"),
        ("full", "full"),
        ({"allow": ["PyPI.org.", "*.example.com:8443"]}, {"allow": ["pypi.org", "*.example.com:8443"]}),
    ],
)
async def test_networks(client: httpx2.AsyncClient, asked: Any, shown: Any) -> None:
    session = (await client.post("/v1/sessions", json={"network": asked})).json()
    assert session["network"] == shown
    assert (await client.get(f"/v1/sessions/{session['id']}")).json()["network"] == shown


async def test_a_bad_host_is_named(client: httpx2.AsyncClient) -> None:
    response = await client.post("/v1/sessions", json={"network": {"allow": ["pypi.org", "*"]}})
    assert told(response) == (422, "bad_input")
    assert response.json()["error"]["message"].startswith("network.allow: '*' would allow everything")
    wishes: list[Any] = ["some", {"deny": []}, {"allow": "pypi.org"}, 7]
    for wish in wishes:
        response = await client.post("/v1/sessions", json={"network": wish})
        assert response.json()["error"]["message"] == 'network: must be "none", "full" or {"allow": ["host", …]}'


async def test_list_pages_and_filters(client: httpx2.AsyncClient) -> None:
    ids = [(await client.post("/v1/sessions")).json()["id"] for _ in range(5)]
    await client.delete(f"/v1/sessions/{ids[0]}")
    page = (await client.get("/v1/sessions?limit=2")).json()
    assert [one["id"] for one in page["sessions"]] == [ids[4], ids[3]]
    page = (await client.get("/v1/sessions", params={"limit": 10, "cursor": page["next_cursor"]})).json()
    assert [one["id"] for one in page["sessions"]] == [ids[2], ids[1]]
    assert page["next_cursor"] is None
    for query in ("status=destroyed", "status=destroyed&status=error", "status=error,destroyed"):
        page = (await client.get(f"/v1/sessions?{query}")).json()
        assert [one["id"] for one in page["sessions"]] == ids[:1]
    assert told(await client.get("/v1/sessions?status=asleep")) == (422, "bad_input")
    assert told(await client.get("/v1/sessions?limit=0")) == (422, "bad_input")


async def test_delete_twice(client: httpx2.AsyncClient, session_id: str) -> None:
    for _ in range(2):
        response = await client.delete(f"/v1/sessions/{session_id}")
        assert (response.status_code, response.content) == (204, b"")
    assert told(await client.post(f"/v1/sessions/{session_id}/exec", json={"cmd": "true"})) == (410, "session_gone")


async def test_exec_and_its_result_again(
    client: httpx2.AsyncClient, host: ApiHost, session_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = host.note(monkeypatch, "exec")
    body = {"cmd": "cat", "stdin": "höi", "env": {"A": "b"}, "cwd": "/tmp", "timeout_ms": 500, "shell": "two"}
    response = await client.post(f"/v1/sessions/{session_id}/exec", json=body)
    assert response.status_code == 200
    result = response.json()
    assert result["stdout"] == result["output"] == "höi"
    wanted = "exec_id exit_code cwd output stdout stderr truncated timed_out cancelled duration_ms shell_restarted"
    wanted += " oom_killed"
    assert set(result) == set(wanted.split())
    asked = ExecRequest(cmd="cat", timeout_ms=500, stdin="höi".encode(), env={"A": "b"}, cwd="/tmp", shell="two")
    assert noted == [((session_id, asked), {"idempotency_key": None})]
    assert (await client.get(f"/v1/sessions/{session_id}/exec/{result['exec_id']}")).json() == result
    assert told(await client.get(f"/v1/sessions/{session_id}/exec/exe_no")) == (404, "exec_not_found")


async def test_output_that_is_not_text(tmp_path: Path) -> None:
    async with open_api(tmp_path, runners=True) as host, host.client() as client:
        session_id = (await client.post("/v1/sessions")).json()["id"]
        command = {"cmd": r"printf 'a\xff\0b'"}
        result = (await client.post(f"/v1/sessions/{session_id}/exec", json=command)).json()
    assert result["stdout"] == "a\ufffd\0b"


async def test_idempotency_key(client: httpx2.AsyncClient, session_id: str, host: ApiHost) -> None:
    key = {"Idempotency-Key": "one"}
    url = f"/v1/sessions/{session_id}/exec"
    first = await client.post(url, json={"cmd": "echo 1"}, headers=key)
    assert (await client.post(url, json={"cmd": "echo 1"}, headers=key)).json() == first.json()
    assert host.commands(session_id) == 1
    assert told(await client.post(url, json={"cmd": "echo 2"}, headers=key)) == (409, "idempotency_mismatch")
    assert told(await client.post(url, json={"cmd": "true"}, headers={"Idempotency-Key": "a b"}))[0] == 422
    assert told(await client.post("/v1/sessions", headers={"Idempotency-Key": "x" * 256}))[0] == 422


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "cmd is required"),
        ({"cmd": "a\0b"}, "cmd: must not contain a NUL"),
        ({"cmd": 1}, "cmd: must be a valid string"),
        ({"cmd": "true", "timeout_ms": 0}, "timeout_ms: must be greater than 0"),
        ({"cmd": "true", "timeout_ms": -1}, "timeout_ms"),
        ({"cmd": "true", "timeout_ms": "5"}, "timeout_ms"),
        ({"cmd": "true", "timeout_ms": 10**9}, "timeout_ms: 1000000000 is not between 1 and 120000"),
        ({"cmd": "true", "env": {"1A": "x"}}, "env: a name must"),
        ({"cmd": "true", "env": {"A": "x\0"}}, "env: must not contain a NUL"),
        ({"cmd": "true", "env": {"A\n": "x"}}, "env: a name must"),
        ({"cmd": "true", "env": {"A": "x" * 300_000}}, "env: must not be larger"),
        ({"cmd": "true", "cwd": "tmp"}, "cwd: must be absolute"),
        ({"cmd": "true", "shell": "a/b"}, "shell"),
        ({"cmd": "true", "command": "x"}, "command is not a known field"),
    ],
)
async def test_bad_exec(client: httpx2.AsyncClient, session_id: str, body: dict[str, Any], says: str) -> None:
    response = await client.post(f"/v1/sessions/{session_id}/exec", json=body)
    assert told(response) == (422, "bad_input")
    assert says in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"ttl_seconds": 0},
        {"ttl_seconds": 1.5},
        {"ttl_seconds": 10**30},
        {"image": ""},
        {"image": "a\0"},
        {"limits": {"cpus": 0}},
        {"limits": {"cpu": 1}},
        {"limits": {"memory_mb": -1}},
        {"limits": {"pids": True}},
        {"network": "some"},
        {"network": {"allow": []}},
        {"network": {"allow": ["pypi.org"] * 257}},
        {"network": {"allow": ["http://pypi.org"]}},
        {"network": {"allow": ["pypi.org"], "deny": []}},
        {"network": {"allow": "pypi.org"}},
        {"network": ["pypi.org"]},
        {"writable_root": "yes"},
        {"metadata": {str(n): "" for n in range(65)}},
        {"metadata": {"a": "x" * 17_000}},
        {"metadata": {"a": 1}},
        {"metadata": {"a": "\0"}},
        {"surprise": 1},
        [],
        "text",
    ],
)
async def test_bad_create(client: httpx2.AsyncClient, body: Any) -> None:
    assert told(await client.post("/v1/sessions", json=body)) == (422, "bad_input")


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"\xff",
        b'{"cmd":"\xff"}',
        b'{"cmd":"\\ud800"}',
        b'{"cmd":"true","stdin":"\\ud800"}',
        b'{"cmd":"true","env":{"A":"\\ud800"}}',
        b'{"cmd":"true","\\ud800":1}',
        b"[" * 100_000,
        b"9" * 10_000,
        b'{"cmd":NaN}',
        b"null",
        b"",
    ],
)
async def test_bodies_that_are_not_json(client: httpx2.AsyncClient, session_id: str, raw: bytes) -> None:
    url = f"/v1/sessions/{session_id}/exec"
    headers = {"Content-Type": "application/json"}
    assert told(await client.post(url, content=raw, headers=headers)) == (422, "bad_input")
    assert told(await client.post(url.replace("exec", "fs/write"), content=raw, headers=headers)) == (422, "bad_input")


async def test_json_without_its_content_type_is_explained(client: httpx2.AsyncClient, session_id: str) -> None:
    response = await client.post(f"/v1/sessions/{session_id}/exec", content=b'{"cmd":"true"}')
    assert "application/json" in response.json()["error"]["message"]


async def test_large_commands(client: httpx2.AsyncClient, session_id: str) -> None:
    url = f"/v1/sessions/{session_id}/exec"
    assert (await client.post(url, json={"cmd": ": " + "x" * 1_000_000})).status_code == 200
    assert told(await client.post(url, json={"cmd": "x" * (1024 * 1024 + 1)})) == (413, "too_large")
    assert told(await client.post(url, json={"cmd": "é" * (600 * 1024)})) == (413, "too_large")
    assert told(await client.post(url, json={"cmd": "x" * (2 * 1024 * 1024)})) == (413, "too_large")


async def test_unknown_things(client: httpx2.AsyncClient) -> None:
    for bad in ("ses_nope", "%00", "a b", "x" * 500, "%ff"):
        assert told(await client.get(f"/v1/sessions/{bad}")) == (404, "session_not_found")
    assert told(await client.get("/v1/nope")) == (404, "not_found")
    assert told(await client.get("/v1/sessions/")) == (404, "not_found")
    response = await client.put("/v1/sessions")
    assert told(response) == (405, "method_not_allowed")
    assert response.headers["allow"]


@pytest.mark.parametrize(
    "error",
    [
        errors.WrongState("it is paused"),
        errors.SessionGone("expired"),
        errors.TooManySessions("enough"),
        errors.RuntimeUnavailable("install runc"),
        errors.SandboxLost("it died"),
        errors.Forbidden("not yours"),
        errors.DiskFull("no room"),
        errors.DriverTransient("try again"),
        errors.NotAFile("a directory"),
        errors.UnknownImage("none"),
    ],
)
async def test_errors_of_the_service(
    client: httpx2.AsyncClient,
    session_id: str,
    host: ApiHost,
    error: errors.HoldfastError,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host.fail(monkeypatch, "get", error)
    response = await client.get(f"/v1/sessions/{session_id}")
    assert told(response) == (error.status, error.code)
    assert response.json()["error"]["message"] == error.message
    assert ("retry-after" in response.headers) == (error.status in (429, 503))


async def test_unexpected_errors_leak_nothing(
    client: httpx2.AsyncClient,
    session_id: str,
    host: ApiHost,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host.fail(monkeypatch, "get", ZeroDivisionError("the secret"))
    response = await client.get(f"/v1/sessions/{session_id}")
    assert told(response) == (500, "internal")
    assert "secret" not in response.text
    assert "Traceback" not in response.text
    logged = capsys.readouterr().out
    assert "the secret" in logged
    assert response.headers["x-request-id"] in logged


async def test_images(
    client: httpx2.AsyncClient, host: ApiHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "alpine.tar"
    with tarfile.open(source, "w") as archive:
        archive.addfile(tarfile.TarInfo("usr/motd"))
    response = await client.post("/v1/images", json={"name": "alpine", "source": str(source)})
    assert response.status_code == 201, response.text
    made = response.json()
    assert (made["name"], made["kind"], made["recipe"]) == ("alpine", "imported", None)
    assert made["created_at"].endswith("Z") and made["digest"].startswith("sha256:")
    again = await client.post("/v1/images", json={"name": "alpine", "source": str(source)})
    assert told(again) == (409, "conflict")
    names = [one["name"] for one in (await client.get("/v1/images")).json()["images"]]
    assert sorted(names) == ["alpine", "host"]
    assert (await client.delete("/v1/images/alpine")).status_code == 204
    assert told(await client.delete("/v1/images/alpine")) == (404, "image_not_found")
    assert told(await client.post("/v1/images", json={"name": "x", "source": "relative"})) == (422, "bad_input")
    assert told(await client.post("/v1/images", json={"name": "x", "source": "oci:/a"})) == (422, "bad_input")
    asked: list[tuple[object, ...]] = []

    async def nowhere(*given: object, **more: object) -> None:
        asked.append((*given, more))
        raise errors.ImageNotFound("the registry does not know it")

    monkeypatch.setattr(host.images, "import_", nowhere)
    fetched = await client.post("/v1/images", json={"name": "y", "source": "docker://registry.test/name:1"})
    assert told(fetched) == (404, "image_not_found")
    assert asked == [("y", "docker://registry.test/name:1", {"replace": False})]


async def test_stats_of_one(client: httpx2.AsyncClient, session_id: str, host: ApiHost) -> None:
    host.use(session_id)
    response = await client.get(f"/v1/sessions/{session_id}/stats")
    assert response.status_code == 200
    stats = response.json()
    assert stats.pop("uptime_seconds") >= 0
    assert stats == USED
    await host.sessions.destroy(session_id)
    assert told(await client.get(f"/v1/sessions/{session_id}/stats")) == (410, "session_gone")
    assert told(await client.get("/v1/sessions/ses_none/stats")) == (404, "session_not_found")


async def test_stats_in_a_list_only_when_asked_for(client: httpx2.AsyncClient, session_id: str, host: ApiHost) -> None:
    host.use(session_id)
    [plain] = (await client.get("/v1/sessions")).json()["sessions"]
    [full] = (await client.get("/v1/sessions", params={"stats": "true"})).json()["sessions"]
    assert plain["stats"] is None
    assert full["stats"].pop("uptime_seconds") >= 0
    assert full.pop("stats") == USED
    alone = (await client.get(f"/v1/sessions/{session_id}")).json()
    del alone["urls"]
    assert full == alone
    assert told(await client.get("/v1/sessions", params={"stats": "perhaps"})) == (422, "bad_input")


async def test_a_command_that_ran_out_of_memory(client: httpx2.AsyncClient, session_id: str, host: ApiHost) -> None:
    starving = asyncio.create_task(host.starve(session_id))
    result = (await client.post(f"/v1/sessions/{session_id}/exec", json={"cmd": "sleep 0.1; exit 137"})).json()
    await starving
    assert (result["exit_code"], result["oom_killed"]) == (137, True)
    assert (await client.get(f"/v1/sessions/{session_id}/exec/{result['exec_id']}")).json() == result


async def test_addresses_by_name_cost_a_create_nothing(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise AssertionError("a new session has no tunnels: there is nothing to look up")

    with monkeypatch.context() as patched:
        patched.setattr("holdfast.store.gateway.tunnels.TunnelStore.of_session", fail)
        made = (await client.post("/v1/sessions", headers={"Host": "localhost:8080"})).json()
    address = f"--{made['id'].replace('_', '-')}.localhost:8080/"
    assert made["urls"] == {"terminal": f"http://terminal{address}"}
    path = f"/v1/sessions/{made['id']}"
    tunnel = await client.post(f"{path}/tunnels", json={"name": "web", "port": 3000})
    assert tunnel.status_code == 201
    shown = (await client.get(path, headers={"Host": "127.0.0.1:8080"})).json()["urls"]
    assert shown == {"terminal": f"http://terminal{address}", "web": f"http://web{address}"}
    listed = (await client.get("/v1/sessions")).json()["sessions"]
    assert listed and "urls" not in listed[0], "a list looks nothing up for each"
