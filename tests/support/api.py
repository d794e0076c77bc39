"""The HTTP API as tests use it: each answer is checked for its shape before a test sees it."""

import base64
import uuid
from collections.abc import Mapping
from typing import Any

import httpx2

from support.daemons.daemon import DaemonProcess, wait_for

Json = dict[str, Any]


def new_key() -> str:
    return f"test-{uuid.uuid4().hex}"


def checked(response: httpx2.Response) -> httpx2.Response:
    """Every answer has a request id; every failure has the one shape, the same id, and no traceback."""
    assert response.headers.get("x-request-id"), f"no request id: {response.status_code} {response.text[:300]}"
    if response.status_code >= 400:
        error = response.json()["error"]
        assert set(error) == {"code", "message", "request_id"}, error
        assert error["code"] and error["message"], error
        assert error["request_id"] == response.headers["x-request-id"]
        assert "Traceback" not in response.text and 'File "' not in response.text, response.text
    return response


class Api:
    """One daemon, by its URL at this moment: make a new one after a restart."""

    def __init__(self, daemon: DaemonProcess, timeout: float = 60.0) -> None:
        self.http = daemon.client(timeout)

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> "Api":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def call(self, method: str, path: str, **options: Any) -> httpx2.Response:
        return checked(self.http.request(method, path, **options))

    # -- sessions ----------------------------------------------------------------------------------------------------

    def try_create(self, key: str | None = None, **wishes: Any) -> httpx2.Response:
        return self.call("POST", "/v1/sessions", json=wishes, headers=_key(key))

    def create(self, key: str | None = None, **wishes: Any) -> Json:
        return body(self.try_create(key, **wishes), 201)

    def session(self, session_id: str) -> Json:
        return body(self.call("GET", f"/v1/sessions/{session_id}"), 200)

    def status(self, session_id: str) -> str:
        return str(self.session(session_id)["status"])

    def sessions(self, **params: Any) -> list[Json]:
        found: list[Json] = body(self.call("GET", "/v1/sessions", params={"limit": 200, **params}), 200)["sessions"]
        return found

    def destroy(self, session_id: str) -> httpx2.Response:
        return self.call("DELETE", f"/v1/sessions/{session_id}")

    # -- commands ----------------------------------------------------------------------------------------------------

    def try_exec(self, session_id: str, cmd: str, key: str | None = None, **fields: Any) -> httpx2.Response:
        return self.call("POST", f"/v1/sessions/{session_id}/exec", json={"cmd": cmd, **fields}, headers=_key(key))

    def exec(self, session_id: str, cmd: str, key: str | None = None, **fields: Any) -> Json:
        return body(self.try_exec(session_id, cmd, key, **fields), 200)

    def out(self, session_id: str, cmd: str, **fields: Any) -> str:
        """The standard output of a command that must succeed."""
        result = self.exec(session_id, cmd, **fields)
        assert result["exit_code"] == 0, result
        return str(result["stdout"]).strip()

    def try_result(self, session_id: str, exec_id: str) -> httpx2.Response:
        return self.call("GET", f"/v1/sessions/{session_id}/exec/{exec_id}")

    # -- files -------------------------------------------------------------------------------------------------------

    def try_write(self, session_id: str, path: str, content: bytes | str, mode: str | None = None) -> httpx2.Response:
        wish: Json = {"path": path} if mode is None else {"path": path, "mode": mode}
        if isinstance(content, str):
            wish["content"] = content
        else:
            wish["content_base64"] = base64.b64encode(content).decode()
        return self.call("POST", f"/v1/sessions/{session_id}/fs/write", json=wish)

    def write(self, session_id: str, path: str, content: bytes | str, mode: str | None = None) -> None:
        assert body(self.try_write(session_id, path, content, mode), 200) == {"ok": True}

    def try_read(self, session_id: str, path: str, **params: Any) -> httpx2.Response:
        return self.call("GET", f"/v1/sessions/{session_id}/fs/read", params={"path": path, **params})

    def read(self, session_id: str, path: str, **params: Any) -> tuple[bytes, bool]:
        found = body(self.try_read(session_id, path, **params), 200)
        return base64.b64decode(found["content_base64"], validate=True), found["truncated"]


def body(response: httpx2.Response, status: int) -> Json:
    assert response.status_code == status, f"{response.status_code}, not {status}: {response.text[:500]}"
    found: Json = response.json()
    return found


def code(response: httpx2.Response, status: int) -> str:
    """The error's code of an answer that must have failed with this status."""
    assert response.status_code == status, f"{response.status_code}, not {status}: {response.text[:500]}"
    return str(response.json()["error"]["code"])


def wait_for_tick(api: Api) -> None:
    """Until the reaper and, after it, the reconciler have looked at everything once more."""
    for _ in range(2):  # a tick that is under way may have looked already; the second one has not
        doomed = api.create(ttl_seconds=1)["id"]
        wait_for(lambda: api.status(doomed) == "destroyed", "a session of one second is reaped by a tick")  # noqa: B023


def _key(key: str | None) -> Mapping[str, str]:
    return {} if key is None else {"Idempotency-Key": key}
