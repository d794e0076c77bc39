"""What a key with scope read sees: every route is walked, with a secret planted in every field that can hold one."""

import itertools
from collections.abc import Iterator

import httpx2
import pytest

from holdfast.api.edge.access import NEEDS
from holdfast.callers.types import Scope
from support.daemons.daemon import DaemonProcess, wait_for

CANARY = "canary-6f1d2c"
NOT_FILES = (
    "/proc/self/environ",
    "/proc/1/environ",
    "//proc/self/environ",
    "/workspace/../proc/self/environ",
    "/dev/fd",
)


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    webhook = {"url": f"http://user:{CANARY}@127.0.0.1:9/?token={CANARY}", "secret": f"{CANARY}-0123456789abcdef"}
    with DaemonProcess(driver="process", webhooks=[webhook]) as daemon:
        yield daemon
        daemon.destroy_everything()


@pytest.fixture(scope="module")
def names(daemon: DaemonProcess) -> dict[str, str]:
    """One of everything, each with the secret in it."""
    with daemon.client() as client:

        def made(path: str, wish: object) -> dict[str, str]:
            response = client.post(path, json=wish)
            assert response.status_code < 300, response.text
            found: dict[str, str] = response.json()
            return found

        env = {"TOKEN": CANARY}
        session = made("/v1/sessions", {"env": env})["id"]
        base = f"/v1/sessions/{session}"
        ran = made(f"{base}/exec", {"cmd": "pwd", "env": env, "stdin": CANARY})
        process = made(f"{base}/processes", {"cmd": "true", "env": env})["process_id"]
        options = {"env": env, "repo": {"url": f"https://git.invalid/a/b?token={CANARY}"}}
        made("/v1/threads/secret:a/messages", {"id": "m1", "text": "say hi", "options": options})
        wait_for(lambda: client.get("/v1/threads/secret:a/messages/m1").json()["turn_id"], "a turn has begun")
        turn = client.get("/v1/threads/secret:a/messages/m1").json()["turn_id"]
        names = {"session_id": session, "exec_id": ran["exec_id"], "process_id": process, "key": "secret:a"}
        return {**names, "message_id": "m1", "turn_id": turn, "file_id": "fil_1", "reference": "r", "home": ran["cwd"]}


@pytest.fixture(scope="module")
def reader(daemon: DaemonProcess) -> Iterator[httpx2.Client]:
    with daemon.client() as root:
        key = root.post("/v1/keys", json={"name": "looks", "scope": "read", "owner": "root"}).json()["key"]
    headers = {"Authorization": f"Bearer {key}"}
    with httpx2.Client(base_url=daemon.url, headers=headers, timeout=2, trust_env=False) as client:
        yield client


def seen(client: httpx2.Client, path: str, params: dict[str, str]) -> tuple[int, bytes]:
    """What comes within two seconds, of a stream without end as well."""
    found = b""
    with client.stream("GET", path, params=params) as response:
        try:
            for piece in response.iter_raw():
                found += piece
        except httpx2.ReadTimeout:
            pass
        return response.status_code, found


def test_no_route_shows_a_secret(reader: httpx2.Client, names: dict[str, str]) -> None:
    params = {"path": names["home"], "pattern": "*", "stats": "true"}
    seen_well = 0
    for route, scope in NEEDS.items():
        method, path = route.split(" ")
        if method == "GET" and scope is Scope.READ:
            status, body = seen(reader, path.format_map(names), params)
            assert CANARY.encode() not in body, f"{route} shows it: {body[:2000]!r}"
            seen_well += status == 200
    assert seen_well > 20, "the walk has lost its way"


def test_names_stay_and_who_may_use_it_sees_values(
    daemon: DaemonProcess, reader: httpx2.Client, names: dict[str, str]
) -> None:
    path = f"/v1/threads/{names['key']}"
    options = reader.get(path).json()["options"]
    assert options["env"] == {"TOKEN": "***"}
    assert options["repo"]["url"] == "https://git.invalid/a/b?***"
    with daemon.client() as root:
        assert root.get(path).json()["options"]["env"] == {"TOKEN": CANARY}


def test_no_way_to_what_processes_were_started_with(reader: httpx2.Client, names: dict[str, str]) -> None:
    base = f"/v1/sessions/{names['session_id']}/fs"
    for verb, path in itertools.product(("read", "file", "list", "stat", "archive"), NOT_FILES):
        response = reader.get(f"{base}/{verb}", params={"path": path})
        assert response.status_code == 403, f"{verb} {path}: {response.text[:200]}"
    assert reader.get(f"{base}/archive", params={"path": "/"}).status_code == 403
    assert reader.get(f"{base}/list", params={"path": names["home"]}).status_code == 200
