"""What each route needs: the whole table, that nothing is missing in it, and that what is forgotten stays closed."""

import re
from collections.abc import Mapping

import httpx2
import pytest
from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route, WebSocketRoute

from holdfast.api import ApiSettings
from holdfast.api.edge.access import Access, Need, routes_of
from holdfast.api.wire.routes import Routes
from holdfast.callers.ring import KeyRing
from holdfast.callers.types import Scope
from support.api_host import application, scopes

NEEDS: Mapping[str, Scope | None] = {
    "GET /v1/sessions": Scope.READ,
    "POST /v1/sessions": Scope.USE,
    "GET /v1/sessions/{session_id}": Scope.READ,
    "DELETE /v1/sessions/{session_id}": Scope.USE,
    "GET /v1/sessions/{session_id}/stats": Scope.READ,
    "POST /v1/sessions/{session_id}/pause": Scope.USE,
    "POST /v1/sessions/{session_id}/resume": Scope.USE,
    "POST /v1/sessions/{session_id}/hibernate": Scope.USE,
    "POST /v1/sessions/{session_id}/restore": Scope.USE,
    "POST /v1/sessions/{session_id}/fork": Scope.USE,
    "POST /v1/sessions/{session_id}/snapshots": Scope.USE,
    "POST /v1/sessions/{session_id}/exec": Scope.USE,
    "GET /v1/sessions/{session_id}/exec/{exec_id}": Scope.READ,
    "POST /v1/sessions/{session_id}/exec/stream": Scope.USE,
    "GET /v1/sessions/{session_id}/exec/{exec_id}/stream": Scope.READ,
    "POST /v1/sessions/{session_id}/exec/{exec_id}/cancel": Scope.USE,
    "GET /v1/sessions/{session_id}/processes": Scope.READ,
    "POST /v1/sessions/{session_id}/processes": Scope.USE,
    "GET /v1/sessions/{session_id}/processes/{process_id}": Scope.READ,
    "DELETE /v1/sessions/{session_id}/processes/{process_id}": Scope.USE,
    "GET /v1/sessions/{session_id}/processes/{process_id}/output": Scope.READ,
    "GET /v1/sessions/{session_id}/processes/{process_id}/stream": Scope.READ,
    "POST /v1/sessions/{session_id}/processes/{process_id}/stdin": Scope.USE,
    "POST /v1/sessions/{session_id}/processes/{process_id}/signal": Scope.USE,
    "POST /v1/sessions/{session_id}/processes/{process_id}/resize": Scope.USE,
    "WS /v1/sessions/{session_id}/terminal": Scope.USE,
    "GET /v1/sessions/{session_id}/ports": Scope.READ,
    "WS /v1/sessions/{session_id}/ports/{port}/tunnel": Scope.USE,
    "POST /v1/sessions/{session_id}/ports/{port}/link": Scope.USE,
    "GET /v1/sessions/{session_id}/tunnels": Scope.READ,
    "POST /v1/sessions/{session_id}/tunnels": Scope.USE,
    "DELETE /v1/sessions/{session_id}/tunnels/{tunnel}": Scope.USE,
    "POST /v1/sessions/{session_id}/tunnels/{tunnel}/link": Scope.USE,
    "GET /v1/sessions/{session_id}/links": Scope.READ,
    "DELETE /v1/sessions/{session_id}/links/{link_id}": Scope.USE,
    "GET /v1/sessions/{session_id}/services": Scope.READ,
    "POST /v1/sessions/{session_id}/services/{service}": Scope.USE,
    "DELETE /v1/sessions/{session_id}/services/{service}": Scope.USE,
    "GET /v1/sessions/{session_id}/services/{service}/log": Scope.READ,
    "GET /v1/sessions/{session_id}/gateway-secret": Scope.ADMIN,
    "POST /v1/tickets": Scope.USE,
    "POST /v1/sessions/{session_id}/fs/write": Scope.USE,
    "GET /v1/sessions/{session_id}/fs/read": Scope.READ,
    "PUT /v1/sessions/{session_id}/fs/file": Scope.USE,
    "GET /v1/sessions/{session_id}/fs/file": Scope.READ,
    "PUT /v1/sessions/{session_id}/fs/archive": Scope.USE,
    "GET /v1/sessions/{session_id}/fs/archive": Scope.READ,
    "POST /v1/sessions/{session_id}/fs/link": Scope.USE,
    "GET /v1/sessions/{session_id}/fs/stat": Scope.READ,
    "GET /v1/sessions/{session_id}/fs/list": Scope.READ,
    "GET /v1/sessions/{session_id}/fs/find": Scope.READ,
    "GET /v1/sessions/{session_id}/fs/watch": Scope.READ,
    "POST /v1/sessions/{session_id}/fs/mkdir": Scope.USE,
    "POST /v1/sessions/{session_id}/fs/move": Scope.USE,
    "POST /v1/sessions/{session_id}/fs/copy": Scope.USE,
    "POST /v1/sessions/{session_id}/fs/remove": Scope.USE,
    "POST /v1/sessions/{session_id}/fs/chmod": Scope.USE,
    "GET /v1/snapshots": Scope.READ,
    "GET /v1/snapshots/{reference}": Scope.READ,
    "DELETE /v1/snapshots/{reference}": Scope.USE,
    "GET /v1/workspaces": Scope.READ,
    "DELETE /v1/workspaces/{reference}": Scope.USE,
    "GET /v1/strays": Scope.ADMIN,
    "POST /v1/strays/{stray_id}/adopt": Scope.ADMIN,
    "DELETE /v1/strays/{stray_id}": Scope.ADMIN,
    "GET /v1/usage": Scope.READ,
    "GET /v1/threads": Scope.READ,
    "GET /v1/threads/{key}": Scope.READ,
    "DELETE /v1/threads/{key}": Scope.USE,
    "POST /v1/threads/{key}/resolve": Scope.USE,
    "GET /v1/threads/{key}/messages": Scope.READ,
    "POST /v1/threads/{key}/messages": Scope.USE,
    "GET /v1/threads/{key}/messages/{message_id}": Scope.READ,
    "DELETE /v1/threads/{key}/messages/{message_id}": Scope.USE,
    "GET /v1/threads/{key}/turns/{turn_id}": Scope.READ,
    "GET /v1/threads/{key}/transcript": Scope.READ,
    "GET /v1/threads/{key}/events": Scope.READ,
    "GET /v1/threads/{key}/events/stream": Scope.READ,
    "WS /v1/threads/{key}/ws": Scope.USE,
    "POST /v1/threads/{key}/abort": Scope.USE,
    "POST /v1/threads/{key}/questions/{question_id}/answer": Scope.USE,
    "POST /v1/threads/{key}/revert": Scope.USE,
    "POST /v1/threads/{key}/pause": Scope.USE,
    "GET /v1/threads/{key}/diff": Scope.USE,
    "GET /v1/threads/{key}/commands": Scope.USE,
    "POST /v1/threads/{key}/commands": Scope.USE,
    "POST /v1/threads/{key}/review": Scope.USE,
    "POST /v1/threads/{key}/new-session": Scope.USE,
    "GET /v1/threads/{key}/models": Scope.READ,
    "PUT /v1/threads/{key}/model": Scope.USE,
    "GET /v1/models": Scope.READ,
    "GET /v1/threads/{key}/files": Scope.READ,
    "POST /v1/threads/{key}/files": Scope.USE,
    "GET /v1/threads/{key}/artifacts/{file_id}": Scope.READ,
    "GET /v1/images": Scope.READ,
    "POST /v1/images": Scope.ADMIN,
    "DELETE /v1/images/{name}": Scope.ADMIN,
    "GET /v1/events": Scope.READ,
    "GET /v1/keys": Scope.ADMIN,
    "POST /v1/keys": Scope.ADMIN,
    "DELETE /v1/keys/{name}": Scope.ADMIN,
    "GET /healthz": Scope.READ,
    "GET /metrics": Scope.ADMIN,
    "GET /docs": None,
    "GET /openapi.json": None,
    "GET /v1/files/{token}": None,
    "PUT /v1/files/{token}": None,
}
"""Who may do what: a change of this is a change of what every key opens. None is open for everybody."""


@pytest.fixture
def whole() -> FastAPI:
    """An application that no other test has."""
    app: FastAPI = application.__wrapped__(ApiSettings())[0]
    return app


@pytest.fixture(scope="module")
def access() -> Access:
    return Access(scopes())


def test_what_each_route_needs() -> None:
    assert scopes() == NEEDS


def test_every_route_has_a_rule_and_every_rule_a_route(whole: FastAPI) -> None:
    assert sorted(routes_of(whole)) == sorted(NEEDS)


def test_a_route_without_a_scope_cannot_be_written() -> None:
    with pytest.raises(TypeError, match="scope"):
        Routes("things").get("/v1/things", "List things")
    with pytest.raises(TypeError, match="scope"):
        Routes("things").websocket("/v1/things/ws")  # type: ignore[call-arg]  # that is the point


def test_what_changes_something_needs_more_than_read() -> None:
    weak = [route for route, scope in NEEDS.items() if not route.startswith("GET ") and scope is Scope.READ]
    assert weak == []


@pytest.mark.parametrize("route", [route for route, scope in NEEDS.items() if scope is not None])
def test_a_request_finds_its_own_rule(access: Access, route: str) -> None:
    method, path = route.split(" ")
    need = access.need_of(method, re.sub(r"\{\w+\}", "some-thing_1", path))
    assert need is not None
    assert need.scope is NEEDS[route]
    assert need.session_id == ("some-thing_1" if "{session_id}" in path else None)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v1/sessions"),
        ("GET", "/v1/sessions/"),
        ("GET", "/v1/sessions/a/b"),
        ("GET", "/v1//sessions"),
        ("GET", "/V1/sessions"),
        ("GET", "/v1/sessions/a/exec/b/c"),
        ("WS", "/v1/sessions/a"),
        ("BREW", "/v1/sessions"),
        ("GET", "/docs"),
        ("GET", "/v1/files/token"),
    ],
)
def test_what_is_not_in_the_table_has_no_rule(access: Access, method: str, path: str) -> None:
    assert access.need_of(method, path) is None


def test_looking_with_head_is_looking(access: Access) -> None:
    assert access.need_of("HEAD", "/v1/keys") == access.need_of("GET", "/v1/keys") == Need(Scope.ADMIN)


def test_of_two_rules_that_fit_the_stricter_counts() -> None:
    rules = {"GET /v1/{session_id}/x": Scope.READ, "GET /v1/y/{name}": Scope.ADMIN}
    for access in (Access(rules), Access(dict(reversed(rules.items())))):
        assert access.need_of("GET", "/v1/y/x") == Need(Scope.ADMIN, "y")


async def _endpoint(*_: object) -> Response:
    return Response()


@pytest.mark.parametrize(
    ("forgotten", "named"),
    [
        (Route("/v1/forgotten", _endpoint, methods=["POST"]), "POST /v1/forgotten"),
        (Route("/elsewhere", _endpoint), "GET /elsewhere"),
        (Route("/v1/sessions", _endpoint, methods=["PATCH"]), "PATCH /v1/sessions"),
        (Route("/v1/every-method", Starlette()), "ANY /v1/every-method"),
        (WebSocketRoute("/v1/sessions/{session_id}/forgotten", _endpoint), "WS /v1/sessions/{session_id}/forgotten"),
        (Mount("/v1/mounted", FastAPI()), "ANY /v1/mounted"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("included", [False, True])
def test_an_application_with_a_forgotten_route_is_not_built(
    whole: FastAPI, forgotten: Route, named: str, included: bool
) -> None:
    if included:
        router = APIRouter()
        router.routes.append(forgotten)
        whole.include_router(router)
    else:
        whole.router.routes.append(forgotten)
    with pytest.raises(RuntimeError, match=re.escape(named)):
        whole.state.access.check_complete(whole)


def test_a_session_may_not_be_hidden_under_another_name(whole: FastAPI) -> None:
    access = Access({**NEEDS, "GET /v1/sessions/{id}/secrets": Scope.READ})
    whole.router.routes.append(Route("/v1/sessions/{id}/secrets", _endpoint))
    with pytest.raises(RuntimeError, match="must begin with"):
        access.check_complete(whole)


@pytest.mark.anyio
async def test_a_websocket_that_lost_its_upgrade_is_told_so(client: httpx2.AsyncClient, keys: KeyRing) -> None:
    """As behind a proxy that does not pass it on; for admins and for others."""
    _view, key = await keys.add("ada", Scope.USE, owner=None, max_sessions=None)
    path = "/v1/sessions/ses_00000000/ports/80/tunnel"
    for headers in ({}, {"Authorization": f"Bearer {key}"}):
        response = await client.get(path, headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (426, "upgrade_required")
        assert "Upgrade" in response.json()["error"]["message"]
