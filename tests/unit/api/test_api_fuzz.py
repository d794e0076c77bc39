"""Schemathesis throws everything that the OpenAPI allows, and much that it does not, at the app: never a 5xx.

Behind it are the real services on the fake driver: what comes in is real input, and may be a command to remove all
files. Threads have their turn in ``e2e/test_api_fuzz.py``.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error

from holdfast.api import ApiSettings
from holdfast.callers.types import ROOT
from holdfast.errors import ImageNotFound
from holdfast.records.machine import Status
from holdfast.sessions.types import CreateRequest
from support.api_host import ApiHost, application, running_api

schema = schemathesis.openapi.from_dict(application(ApiSettings())[0].openapi()).exclude(path_regex="^/v1/threads")

UNKNOWN = "this runner does not know the task"


@pytest.fixture(scope="module")
def host() -> Iterator[ApiHost]:
    async def nowhere(*_given: object, **_more: object) -> None:
        raise ImageNotFound("nothing of this machine is imported here")

    with pytest.MonkeyPatch.context() as monkeypatch, running_api(max_sessions=20) as host:
        monkeypatch.setattr(host.images, "import_", nowhere)
        host.end_streams()
        yield host


SESSION = [""]
"""The session that is used until somebody has destroyed it."""


async def usable_session(host: ApiHost) -> str:
    if not SESSION[0] or not await host.fake_host.is_in(SESSION[0], Status.ACTIVE):
        for row in await host.fake_host.rows():
            if row.status is not Status.DESTROYED:
                await host.sessions.destroy(row.id)
        SESSION[0] = (await host.sessions.create(CreateRequest(), idempotency_key=None, caller=ROOT)).id
    return SESSION[0]


@schema.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_never_a_server_error(host: ApiHost, case: schemathesis.Case[Any]) -> None:
    session_id = host.run(usable_session(host))
    if "session_id" in case.path_parameters:
        case.path_parameters["session_id"] = session_id
    if "token" in case.path_parameters and case.method in ("GET", "PUT"):
        case.path_parameters["token"] = host.links.make(session_id, "/w/file", case.method, 2**40, "")
    response = case.call(base_url=host.url, headers={"Authorization": "Bearer " + host.key.encode().decode("latin-1")})
    if response.status_code == 400 and "x-request-id" not in response.headers:
        return  # no HTTP: the server refuses it before the application sees it
    if response.status_code >= 400:
        error = response.json()["error"]
        assert error["code"]
        if error["code"] == "protocol_error" and UNKNOWN in error["message"]:
            return  # it was let through to the runner, which is what can be seen here
    case.validate_response(response, checks=[not_a_server_error])
