"""Schemathesis throws everything that the OpenAPI allows, and much that it does not, at the app: never a 5xx."""

import asyncio
import time
from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error

from fakes.events import FakeEvents
from fakes.file_service import FakeFiles
from fakes.kept_services import FakeSnapshots, FakeStrays, FakeWorkspaces
from fakes.key_store import key_ring
from fakes.session_service import FakeImages, FakeSessions
from holdfast.api import ApiSettings, create_app
from holdfast.api.files.links import FileLinks
from holdfast.callers.types import ROOT
from holdfast.sessions.types import CreateRequest

sessions = FakeSessions()
asyncio.run(sessions.create(CreateRequest(), idempotency_key=None, caller=ROOT))
events = FakeEvents(endless=False)
events.add("created")
links = FileLinks(b"secret", time.time, lambda _key: True)
app = create_app(
    sessions,
    keys=key_ring("key"),
    settings=ApiSettings(),
    images=FakeImages(),
    snapshots=FakeSnapshots(sessions),
    workspaces=FakeWorkspaces(sessions),
    strays=FakeStrays(),
    events=events,
    files=FakeFiles(sessions),
    links=links,
)
TOKENS = {method: links.make("ses_00000000", "/w/file", method, 2**40, "") for method in ("GET", "PUT")}
schema = schemathesis.openapi.from_asgi("/openapi.json", app)


@schema.parametrize()
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_never_a_server_error(case: schemathesis.Case[Any]) -> None:
    if "session_id" in case.path_parameters:
        case.path_parameters["session_id"] = "ses_00000000"
    if "token" in case.path_parameters and case.method in TOKENS:
        case.path_parameters["token"] = TOKENS[case.method]
    response = case.call(headers={"Authorization": "Bearer key"})
    case.validate_response(response, checks=[not_a_server_error])
    if response.status_code >= 400:
        assert response.json()["error"]["code"]
