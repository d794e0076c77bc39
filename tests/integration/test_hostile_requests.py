"""No request holds up the others, whatever is in it: a real daemon is sent the worst that it takes, and watched.

The limit is 50 ms of work in the event loop, by the daemon's own figures: they leave out what other processes of a
busy machine take. There are more chances, since on such a machine work of threads may be counted that lets it run.
"""

import contextlib
import json
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import pytest
from websockets.sync.client import connect

from holdfast.api.edge.json_bounds import MOST_DEPTH, MOST_NAMES, MOST_VALUES
from holdfast.api.settings import ApiSettings
from support.api import checked
from support.daemons.daemon import DaemonProcess
from support.loop_held import LoopHeld

T = TypeVar("T")
MIB = 1 << 20
LIMITS = ApiSettings()
BODIES = {
    "unknown fields": b"{" + b",".join(b'"k%d":1' % number for number in range(MOST_NAMES)) + b"}",
    "more of them": b"{" + b",".join(b'"k%d":1' % number for number in range(90_000)) + b"}",
    "wrong values": b'{"env":{' + b",".join(b'"k%d":1' % number for number in range(MOST_NAMES - 1)) + b"}}",
    "wrong values in a list": b'{"argv":[' + b",".join([b"1"] * (MOST_VALUES - 2)) + b"]}",
    "a long list": b'{"argv":[' + b",".join([b"1"] * 500_000) + b"]}",
    "nested": b"[" * MOST_DEPTH + b"]" * MOST_DEPTH,
    "nested too deeply": b'{"a":' * 100_000,
    "a long number": b'{"ttl_seconds":' + b"9" * 1_000_000 + b"}",
    "long texts": b'{"image":"' + b"\\u00e9" * 170_000 + b'"}',
    "one name, often": b"{" + b",".join([b'"cmd":"a"'] * MOST_NAMES) + b"}",
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with DaemonProcess(driver="process") as daemon:
        yield daemon
        daemon.destroy_everything()


@pytest.fixture(scope="module")
def client(daemon: DaemonProcess) -> Iterator[httpx2.Client]:
    with daemon.client() as client:
        yield client


@pytest.fixture(scope="module")
def session_id(client: httpx2.Client) -> str:
    return str(client.post("/v1/sessions", json={}).json()["id"])


@pytest.fixture(scope="module")
def watch(daemon: DaemonProcess) -> Iterator[LoopHeld]:
    with contextlib.closing(LoopHeld(daemon.url)) as watch:
        yield watch


class Checker:
    """Sends a request, and has an opinion on how long the loop was held meanwhile."""

    def __init__(self, client: httpx2.Client, watch: LoopHeld) -> None:
        self._client = client
        self._watch = watch

    def send(self, method: str, path: str, **options: Any) -> httpx2.Response:
        return self.watched(f"{method} {path}", lambda: checked(self._client.request(method, path, **options)))

    def watched(self, what: str, act: Callable[[], T]) -> T:
        return self._watch.check(what, act)


@pytest.fixture
def checker(client: httpx2.Client, watch: LoopHeld) -> Checker:
    return Checker(client, watch)


def routes_with_json(client: httpx2.Client, session_id: str) -> list[tuple[str, str]]:
    known = {"session_id": session_id, "key": "demo:a", "process_id": "prc_1", "exec_id": "exe_1", "port": "8000"}
    names = defaultdict(lambda: "n", known)
    found = []
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        for method, operation in operations.items():
            if "application/json" in operation.get("requestBody", {}).get("content", {}):
                found.append((method.upper(), path.format_map(names)))
    return found


@pytest.mark.parametrize("kind", list(BODIES))
def test_every_route_takes_every_body(checker: Checker, client: httpx2.Client, session_id: str, kind: str) -> None:
    routes = routes_with_json(client, session_id)
    assert len(routes) > 25, "the walk has lost its way"
    for method, path in routes:
        headers = {"content-type": "application/json"}
        response = checker.send(method, path, content=BODIES[kind], headers=headers)
        assert response.status_code < 500, f"{method} {path}: {response.status_code} {response.text[:200]}"
        assert len(response.content) < 2000, "what was sent comes back"


def test_memory_stays_where_it_was(daemon: DaemonProcess, client: httpx2.Client) -> None:
    client.post("/v1/sessions", content=BODIES["unknown fields"], headers={"content-type": "application/json"})
    before = peak_memory(daemon.pid)
    body = b"{" + b",".join(b'"k%d":1' % number for number in range(1_300_000)) + b"}"
    assert len(body) > 13 * MIB
    for path in ("/v1/sessions", "/v1/threads/a/messages"):
        client.post(path, content=body, headers={"content-type": "application/json"})
        client.post(path, content=body[: 7 * MIB], headers={"content-type": "application/json"})
    assert peak_memory(daemon.pid) - before < 60 * MIB


def peak_memory(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) << 10


@pytest.mark.parametrize("text", [b"\\u00e9", b"a\\n", "é".encode()], ids=["escaped", "lines", "plain"])
def test_a_command_with_much_input(checker: Checker, session_id: str, text: bytes) -> None:
    content = text * ((LIMITS.max_content_bytes - 100) // len(text))
    body = b'{"cmd":"wc -c","stdin":"' + content + b'"}'
    headers = {"content-type": "application/json"}
    response = checker.send("POST", f"/v1/sessions/{session_id}/exec", content=body, headers=headers)
    assert int(response.json()["stdout"]) == len(json.loads(b'"' + content + b'"').encode())


@pytest.mark.parametrize("source", ["/dev/urandom", "/dev/zero"])
def test_a_command_with_much_output(checker: Checker, session_id: str, source: str) -> None:
    """Bytes that are no text take the longest to decode, and NULs to write as JSON."""
    wish = {"cmd": f"head -c 8000000 {source}"}
    response = checker.send("POST", f"/v1/sessions/{session_id}/exec", json=wish)
    assert response.json()["exit_code"] == 0
    again = checker.send("GET", f"/v1/sessions/{session_id}/exec/{response.json()['exec_id']}")
    assert again.content == response.content


def test_files_as_json(checker: Checker, client: httpx2.Client, session_id: str) -> None:
    home = client.post(f"/v1/sessions/{session_id}/exec", json={"cmd": "pwd"}).json()["stdout"].strip()
    head = b'{"path":"%b/file","' % home.encode()
    bodies = {
        "content": (b"a\\n" * (10 * MIB), 20 * MIB),
        "content_base64": (b"AA\\/A" * (8 * MIB), 24 * MIB),
    }
    for name, (content, size) in bodies.items():
        body = head + name.encode() + b'":"' + content + b'"}'
        headers = {"content-type": "application/json"}
        written = checker.send("POST", f"/v1/sessions/{session_id}/fs/write", content=body, headers=headers)
        assert written.json() == {"ok": True}
        counted = client.post(f"/v1/sessions/{session_id}/exec", json={"cmd": f"wc -c < {home}/file"})
        assert int(counted.json()["stdout"]) == size
    wanted = {"path": f"{home}/file"}
    checker.send("GET", f"/v1/sessions/{session_id}/fs/read", params=wanted)
    raw = {"accept": "application/octet-stream"}
    read = checker.send("GET", f"/v1/sessions/{session_id}/fs/read", params=wanted, headers=raw)
    assert len(read.content) == 24 * MIB


def test_messages_of_websockets(daemon: DaemonProcess, checker: Checker, session_id: str) -> None:
    base = daemon.url.replace("http", "ws")
    key = {"Authorization": f"Bearer {daemon.key}"}
    port = urlsplit(daemon.url).port  # where somebody listens: this driver shuts nobody in
    paths = ("threads/demo:ws/ws", f"sessions/{session_id}/terminal", f"sessions/{session_id}/ports/{port}/tunnel")

    def say(path: str, body: bytes) -> None:
        with connect(f"{base}/v1/{path}", additional_headers=key, max_size=None) as socket:
            socket.send(body.decode())
            while '{"error"' not in (told := socket.recv(timeout=30, decode=True)):
                assert len(told) < 4000

    for path in paths:
        for body in BODIES.values():
            checker.watched(path, partial(say, path, body))


def test_half_open_requests_make_nobody_deaf(daemon: DaemonProcess) -> None:
    address = (urlsplit(daemon.url).hostname, urlsplit(daemon.url).port)
    with contextlib.ExitStack() as stack:
        for _ in range(1100):  # more than one peer may have
            half = stack.enter_context(socket.create_connection(address, timeout=10))
            half.sendall(b"GET /healthz HTTP/1.1\r\nx: ")
        with daemon.client(10) as client:
            assert client.get("/v1/sessions").status_code == 200


def test_a_request_with_very_many_headers(daemon: DaemonProcess) -> None:
    with daemon.client(10) as client:
        assert client.get("/healthz", headers=[(f"x-{number}", "y") for number in range(50_000)]).status_code == 431
