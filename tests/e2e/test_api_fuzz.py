"""Schemathesis throws everything at the whole API of a real daemon with real sandboxes: never a 5xx.

On fakes, every run tries more examples (``unit/api/test_api_fuzz.py``); here the long run does.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.core.result import Ok

from support.daemons.daemon import DaemonProcess, unusable_driver

LONG_RUN = bool(os.environ.get("TEST_WHOLE_SUITE"))
EXAMPLES = 25 if LONG_RUN else 10
SPARED = {
    "POST /v1/images",  # would import directories of this machine; its own tests and the app on fakes cover it
    "GET /v1/threads/{key}/events/stream",  # never ends; its own tests cover it
}
SLOW = {
    "POST /v1/sessions": 10,
    "DELETE /v1/sessions/{session_id}": 5,
    "POST /v1/sessions/{session_id}/pause": 5,
    "POST /v1/sessions/{session_id}/hibernate": 5,
    "POST /v1/sessions/{session_id}/fork": 5,
    "POST /v1/threads/{key}/resolve": 5,
    "GET /v1/threads/{key}/diff": 5,
    "GET /v1/threads/{key}/commands": 5,
    "POST /v1/threads/{key}/commands": 5,
    "POST /v1/threads/{key}/review": 5,
}
"""Those after which there is a new sandbox, and how many examples they are worth in the long run; else fewer."""
SLOW_EXAMPLES = 3


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[DaemonProcess]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    with DaemonProcess(max_sessions=40, disk_limit_mb=32, max_exec_timeout_ms=300, exec_timeout_ms=300) as daemon:
        yield daemon


class Target:
    """A session that there is, whatever the fuzzer has destroyed; and a process in it."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self._http = daemon.client()
        self._session = ""
        self._process = ""

    def prepare(self, case: Any) -> None:
        """Let most of what is asked be about something that exists, or nothing interesting would ever run."""
        if "session_id" in case.path_parameters and len(case.path_parameters["session_id"]) % 5:
            case.path_parameters["session_id"] = self.session()
        if "process_id" in case.path_parameters and len(case.path_parameters["process_id"]) % 5:
            case.path_parameters["process_id"] = self.process()
        if "key" in case.path_parameters and len(case.path_parameters["key"]) % 5:
            case.path_parameters["key"] = self.thread()
        if case.path == "/v1/events":
            case.query = {**(case.query or {}), "follow": "false"}  # else it never ends
        if case.operation.label == "POST /v1/threads/{key}/messages":
            case.query = {name: value for name, value in (case.query or {}).items() if name != "wait"}
        if case.operation.label == "POST /v1/sessions" and isinstance(case.body, dict):
            case.body.pop("idempotency_key", None)

    def thread(self) -> str:
        """One that is there, if it can be: made by an upload, which takes no sandbox."""
        self._http.post("/v1/threads/fuzzed/files", params={"name": "x"}, content=b"x")
        return "fuzzed"

    def session(self) -> str:
        known = self._session and self._http.get(f"/v1/sessions/{self._session}").json()
        if not known or known["status"] != "active":
            self._clear()
            self._session = self._http.post("/v1/sessions", json={}).json()["id"]
            self._process = ""
        return self._session

    def process(self) -> str:
        path = f"/v1/sessions/{self.session()}/processes"
        if not self._process or self._http.get(f"{path}/{self._process}").status_code != 200:
            self._process = self._http.post(path, json={"cmd": "echo x; sleep 0.2"}).json()["process_id"]
        return self._process

    def _clear(self) -> None:
        for session in self._http.get("/v1/sessions", params={"limit": 100}).json()["sessions"]:
            self._http.delete(f"/v1/sessions/{session['id']}")


def test_never_a_server_error(fuzzed: DaemonProcess, subtests: pytest.Subtests) -> None:
    schema = schemathesis.openapi.from_url(f"{fuzzed.url}/openapi.json")
    target = Target(fuzzed)
    tried = 0
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        if operation.label in SPARED:
            continue
        tried += 1
        with subtests.test(operation.label):
            _fuzz(operation, target, fuzzed)
    assert tried > 40


def _fuzz(operation: Any, target: Target, daemon: DaemonProcess) -> None:
    examples = SLOW.get(operation.label, EXAMPLES)
    if operation.label in SLOW and not LONG_RUN:
        examples = SLOW_EXAMPLES

    @given(case=operation.as_strategy())
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def ask(case: Any) -> None:
        target.prepare(case)
        response = case.call(headers={"Authorization": f"Bearer {daemon.key}"}, timeout=30)
        assert response.status_code < 500, f"{response.status_code}: {response.text[:500]}\n{daemon.tail()}"
        if response.status_code >= 400:
            assert response.json()["error"]["code"]

    ask()
