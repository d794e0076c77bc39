"""Keys through the API: making and removing them, what each scope may do, and that nobody sees what is not theirs."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest

from holdfast.callers.types import Scope
from holdfast.errors import Unavailable
from support.api_host import ApiHost, scopes

pytestmark = pytest.mark.anyio

Login = Callable[..., Coroutine[Any, Any, httpx2.AsyncClient]]


@pytest.fixture
async def login(host: ApiHost, client: httpx2.AsyncClient) -> AsyncIterator[Login]:
    """A client with a new key of this name."""
    async with AsyncExitStack() as stack:

        async def go(name: str, scope: str = "use", **fields: object) -> httpx2.AsyncClient:
            made = await client.post("/v1/keys", json={"name": name, "scope": scope, **fields})
            assert made.status_code == 201, made.text
            return await stack.enter_async_context(host.client(made.json()["key"], peer="10.0.0.9"))

        yield go


def code(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


async def new(client: httpx2.AsyncClient) -> str:
    response = await client.post("/v1/sessions")
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


async def test_a_key_is_made_listed_and_removed(client: httpx2.AsyncClient) -> None:
    made = await client.post("/v1/keys", json={"name": "ada", "scope": "use", "max_sessions": 3})
    body = made.json()
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    assert body["key"].startswith("hf_")
    assert (body["name"], body["scope"], body["owner"], body["max_sessions"]) == ("ada", "use", "ada", 3)
    listed = (await client.get("/v1/keys")).json()["keys"]
    assert listed == [{name: value for name, value in body.items() if name != "key"}]
    assert listed[0]["last_used_at"] is None
    assert (await client.delete("/v1/keys/ada")).status_code == 204
    assert (await client.get("/v1/keys")).json() == {"keys": []}
    assert code(await client.delete("/v1/keys/ada")) == (404, "key_not_found")


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({}, 422, "name is required"),
        ({"name": "a"}, 422, "scope is required"),
        ({"name": "a", "scope": "owner"}, 422, "'read', 'use' or 'admin'"),
        ({"name": "a b", "scope": "use"}, 422, "name"),
        ({"name": "", "scope": "use"}, 422, "name"),
        ({"name": "a" * 65, "scope": "use"}, 422, "name"),
        ({"name": "ада", "scope": "use"}, 422, "name"),
        ({"name": "a", "scope": "use", "owner": "x/y"}, 422, "owner"),
        ({"name": "a", "scope": "use", "max_sessions": -1}, 422, "max_sessions"),
        ({"name": "a", "scope": "use", "max_sessions": "3"}, 422, "max_sessions"),
        ({"name": "a", "scope": "use", "max_cpus": 0}, 422, "max_cpus"),
        ({"name": "a", "scope": "use", "max_memory_mb": -1}, 422, "max_memory_mb"),
        ({"name": "a", "scope": "use", "max_pids": 1.5}, 422, "max_pids"),
        ({"name": "a", "scope": "use", "max_disk_mb": 10**30}, 422, "max_disk_mb"),
        ({"name": "a", "scope": "use", "key": "mine"}, 422, "key is not a known field"),
        ({"name": "root", "scope": "use"}, 422, "root is the key of the daemon"),
        ({"name": "taken", "scope": "use"}, 409, "there is a key taken already"),
    ],
)
async def test_what_cannot_be_a_key(client: httpx2.AsyncClient, body: object, status: int, says: str) -> None:
    await client.post("/v1/keys", json={"name": "taken", "scope": "read"})
    response = await client.post("/v1/keys", json=body)
    assert response.status_code == status
    assert says in response.json()["error"]["message"]


async def test_root_cannot_be_removed(client: httpx2.AsyncClient) -> None:
    assert code(await client.delete("/v1/keys/root")) == (422, "bad_input")
    assert (await client.get("/v1/keys")).status_code == 200


@pytest.mark.parametrize("scope", Scope)
async def test_a_scope_opens_what_it_should_and_no_more(login: Login, scope: Scope, subtests: pytest.Subtests) -> None:
    caller = await login("ada", scope)
    for route, needed in scopes().items():
        if needed is None:
            continue
        with subtests.test(route):
            method, path = route.split(" ")
            url = path.replace("{session_id}", "ses_x").replace("{exec_id}", "exe_x")
            response = await caller.request(method, url, params={"follow": "false"})  # else events never end
            if scope.includes(needed):
                assert response.status_code not in (401, 403), response.text
            else:
                assert code(response) == (403, "forbidden")
                message = response.json()["error"]["message"]
                assert message == f"this needs a key with scope {needed}; the key ada has scope {scope}"


async def test_a_key_sees_only_its_own_sessions(login: Login, client: httpx2.AsyncClient) -> None:
    ada, bob, boss = await login("ada"), await login("bob"), await login("boss", "admin")
    roots, adas, bobs = await new(client), await new(ada), await new(bob)

    async def listed(caller: httpx2.AsyncClient, **params: str) -> set[tuple[str, str]]:
        page = (await caller.get("/v1/sessions", params=params)).json()
        return {(one["id"], one["owner"]) for one in page["sessions"]}

    assert await listed(ada) == {(adas, "ada")}
    assert await listed(bob) == {(bobs, "bob")}
    assert await listed(bob, cursor=roots) == set(), "a place in the list is no way to what is another's"
    everything = {(roots, "root"), (adas, "ada"), (bobs, "bob")}
    assert await listed(boss) == everything
    assert await listed(client) == everything
    assert (await boss.post(f"/v1/sessions/{adas}/exec", json={"cmd": "echo hi"})).status_code == 200


CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "", {}),
    ("POST", "/exec", {"json": {"cmd": "echo hi"}}),
    ("POST", "/exec", {"json": {"cmd": "echo hi"}, "headers": {"Idempotency-Key": "k"}}),
    ("POST", "/exec", {"json": {}}),
    ("POST", "/exec", {"content": b"not json"}),
    ("GET", "/exec/exe_00000001", {}),
    ("POST", "/fs/write", {"json": {"path": "/a", "content": "b"}}),
    ("GET", "/fs/read?path=/a", {}),
    ("GET", "/fs/read", {}),
    ("DELETE", "", {}),
]


@pytest.mark.parametrize(("method", "below", "options"), CALLS)
async def test_somebody_elses_session_is_like_one_that_does_not_exist(
    login: Login, host: ApiHost, method: str, below: str, options: dict[str, Any]
) -> None:
    ada, bob = await login("ada"), await login("bob")
    theirs, nothing = await new(ada), "ses_nothing0"
    await ada.post(f"/v1/sessions/{theirs}/exec", json={"cmd": "echo hi"}, headers={"Idempotency-Key": "k"})
    await ada.post(f"/v1/sessions/{theirs}/fs/write", json={"path": "/a", "content": "b"})
    answers = []
    for session_id in (theirs, nothing):
        response = await bob.request(method, f"/v1/sessions/{session_id}{below}", **options)
        error = response.json()["error"]
        assert error.pop("request_id") == response.headers["x-request-id"]
        headers = {name: value for name, value in response.headers.items() if name != "x-request-id"}
        headers["content-length"] = str(int(headers["content-length"]) - len(session_id))
        answers.append((response.status_code, headers, str(error).replace(session_id, "ID")))
    assert answers[0] == answers[1]
    assert answers[0][0] == 404 and "session_not_found" in answers[0][2]
    assert host.commands(theirs) == 1
    assert (await ada.get(f"/v1/sessions/{theirs}")).json()["status"] == "active"


@pytest.mark.parametrize("bad", ["a%00b", "ses_%ED%A0%80", "..", "x" * 65, "ses%20x"])
async def test_an_id_that_cannot_be_one_never_reaches_the_service(
    login: Login, host: ApiHost, bad: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = await login("ada")
    host.fail(monkeypatch, "admit", AssertionError("it was asked"))
    assert (await ada.get(f"/v1/sessions/{bad}")).status_code == 404


async def test_idempotency_keys_of_two_owners_do_not_meet(login: Login) -> None:
    ada, bob = await login("ada"), await login("bob")
    headers = {"Idempotency-Key": "same"}
    first = await ada.post("/v1/sessions", json={"ttl_seconds": 60}, headers=headers)
    again = await ada.post("/v1/sessions", json={"ttl_seconds": 60}, headers=headers)
    other = await bob.post("/v1/sessions", json={"ttl_seconds": 99}, headers=headers)
    assert first.json()["id"] == again.json()["id"] != other.json()["id"]
    assert other.status_code == 201


async def test_two_keys_of_one_owner_see_the_same(login: Login, client: httpx2.AsyncClient) -> None:
    ada, watcher = await login("ada"), await login("watcher", "read", owner="ada")
    session_id = await new(ada)
    assert [one["id"] for one in (await watcher.get("/v1/sessions")).json()["sessions"]] == [session_id]
    assert (await watcher.get(f"/v1/sessions/{session_id}")).status_code == 200
    assert code(await watcher.delete(f"/v1/sessions/{session_id}")) == (403, "forbidden")


async def test_the_limit_of_a_key(login: Login, client: httpx2.AsyncClient) -> None:
    ada = await login("ada", max_sessions=1)
    session_id = await new(ada)
    refused = await ada.post("/v1/sessions")
    assert code(refused) == (429, "too_many_sessions")
    await new(client)
    await ada.delete(f"/v1/sessions/{session_id}")
    await new(ada)


async def test_a_removed_key_is_locked_out_at_once_and_its_sessions_stay(
    login: Login, client: httpx2.AsyncClient
) -> None:
    ada = await login("ada")
    session_id = await new(ada)
    assert (await client.delete("/v1/keys/ada")).status_code == 204
    assert code(await ada.get("/v1/sessions")) == (401, "unauthorized")
    assert (await client.get(f"/v1/sessions/{session_id}")).json()["owner"] == "ada"


async def test_an_admin_may_remove_its_own_key_and_hears_that_it_worked(login: Login) -> None:
    boss = await login("boss", "admin")
    assert (await boss.delete("/v1/keys/boss")).status_code == 204
    assert code(await boss.get("/v1/keys")) == (401, "unauthorized")


async def test_unknown_routes_are_not_found_with_any_key(login: Login, client: httpx2.AsyncClient) -> None:
    for caller in (client, await login("ada", "read")):
        assert code(await caller.get("/v1/nope")) == (404, "not_found")
        assert code(await caller.get("/v1")) == (404, "not_found")


async def test_a_route_added_behind_the_tables_back_is_for_admins_only(
    host: ApiHost, login: Login, client: httpx2.AsyncClient
) -> None:
    @host.app.get("/v1/forgotten")
    async def forgotten() -> str:
        return "secret"

    try:
        assert code(await (await login("ada")).get("/v1/forgotten")) == (404, "not_found")
        assert (await client.get("/v1/forgotten")).json() == "secret"
    finally:
        host.app.router.routes.pop()  # other tests have the same application


async def test_a_failing_store_is_said_to_fail(login: Login, host: ApiHost, monkeypatch: pytest.MonkeyPatch) -> None:
    ada = await login("ada")
    host.fail(monkeypatch, "admit", Unavailable("the database is away"))
    response = await ada.get("/v1/sessions/ses_x")
    assert code(response) == (503, "unavailable")
    assert response.headers["retry-after"] == "1"


async def test_the_log_says_which_key_it_was(login: Login, capsys: pytest.CaptureFixture[str]) -> None:
    ada = await login("ada")
    capsys.readouterr()
    await ada.get("/v1/sessions")
    await ada.get("/v1/keys")
    lines = [line for line in capsys.readouterr().out.splitlines() if "request" in line]
    assert len(lines) == 2
    assert all("ada" in line for line in lines)
    assert not any("hf_" in line for line in lines)


async def test_last_use_is_shown(login: Login, client: httpx2.AsyncClient) -> None:
    await (await login("ada")).get("/v1/sessions")
    assert (await client.get("/v1/keys")).json()["keys"][0]["last_used_at"] is not None
