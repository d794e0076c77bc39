"""The table of scopes: every route is in it, nothing else is, and what is forgotten stays closed."""

import re
import time
from types import SimpleNamespace
from typing import cast

import httpx2
import pytest
from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route, WebSocketRoute

from fakes.api_server import KEY
from fakes.events import FakeEvents
from fakes.file_service import FakeFiles
from fakes.kept_services import FakeSnapshots, FakeStrays, FakeWorkspaces
from fakes.key_store import key_ring
from fakes.session_service import FakeCommands, FakeImages, FakeSessions
from holdfast.api import ApiSettings, create_app
from holdfast.api.edge.access import NEEDS, OPEN, check_complete, need_of, routes_of
from holdfast.api.files.links import FileLinks
from holdfast.callers.ring import KeyRing
from holdfast.callers.types import Scope
from holdfast.errors import SessionNotFound
from holdfast.sessions.live import LiveSession
from holdfast.sessions.use.ports import Ports
from holdfast.sessions.use.processes import Processes
from holdfast.threads.service import ThreadService


@pytest.fixture
def whole() -> FastAPI:
    sessions = FakeSessions()
    return create_app(
        sessions,
        keys=key_ring(KEY),
        settings=ApiSettings(),
        images=FakeImages(),
        snapshots=FakeSnapshots(sessions),
        workspaces=FakeWorkspaces(sessions),
        strays=FakeStrays(),
        commands=FakeCommands(sessions),
        processes=Processes(_no_session, time.time),
        ports=Ports(_no_session, time.time),
        events=FakeEvents(),
        files=FakeFiles(sessions),
        links=FileLinks(b"secret", time.time, lambda _key: True),
        threads=cast(ThreadService, SimpleNamespace(commands=None)),  # nothing here calls it
    )


async def _no_session(session_id: str) -> LiveSession:
    raise SessionNotFound(session_id)


def test_every_route_has_a_rule_and_every_rule_a_route(whole: FastAPI) -> None:
    assert sorted(routes_of(whole)) == sorted([*NEEDS, *OPEN])


def test_what_changes_something_needs_more_than_read() -> None:
    weak = [route for route, scope in NEEDS.items() if not route.startswith("GET ") and scope is Scope.READ]
    assert weak == []


@pytest.mark.parametrize("route", NEEDS)
def test_a_request_finds_its_own_rule(route: str) -> None:
    method, path = route.split(" ")
    need = need_of(method, re.sub(r"\{\w+\}", "some-thing_1", path))
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
    ],
)
def test_what_is_not_in_the_table_has_no_rule(method: str, path: str) -> None:
    assert need_of(method, path) is None


def test_looking_with_head_is_looking() -> None:
    assert need_of("HEAD", "/v1/keys") == need_of("GET", "/v1/keys")


def test_of_two_rules_that_fit_the_stricter_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = re.compile(r"^/v1/(?P<session_id>[^/]+)/x$"), re.compile(r"^/v1/y/(?P<name>[^/]+)$")
    for rules in ([(one, Scope.READ), (other, Scope.ADMIN)], [(other, Scope.ADMIN), (one, Scope.READ)]):
        monkeypatch.setattr("holdfast.api.edge.access._RULES", {"GET": rules})
        need = need_of("GET", "/v1/y/x")
        assert need is not None
        assert (need.scope, need.session_id) == (Scope.ADMIN, "y")


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
        check_complete(whole)


def test_a_session_may_not_be_hidden_under_another_name(whole: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    route = "GET /v1/sessions/{id}/secrets"
    monkeypatch.setattr("holdfast.api.edge.access.NEEDS", {**NEEDS, route: Scope.READ})
    whole.router.routes.append(Route("/v1/sessions/{id}/secrets", _endpoint))
    with pytest.raises(RuntimeError, match="must begin with"):
        check_complete(whole)


@pytest.mark.anyio
async def test_a_websocket_that_lost_its_upgrade_is_told_so(client: httpx2.AsyncClient, keys: KeyRing) -> None:
    """As behind a proxy that does not pass it on; for admins and for others."""
    _view, key = await keys.add("ada", Scope.USE, owner=None, max_sessions=None)
    path = "/v1/sessions/ses_00000000/ports/80/tunnel"
    for headers in ({}, {"Authorization": f"Bearer {key}"}):
        response = await client.get(path, headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (426, "upgrade_required")
        assert "Upgrade" in response.json()["error"]["message"]
