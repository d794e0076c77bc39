"""Which scope each route needs: the one place where that is written down.

The guard asks here before the framework has chosen a route, and before a body is read; WebSockets (``WS``) and plain
routes are covered as well. Whose a session is is checked for every route with ``{session_id}`` in it; whose a snapshot
or workspace is, by the service that looks it up; a thread's key names one of the caller's own. A route that is not in
the table cannot be forgotten: the application is not built. If one is added later all the same, only admins reach it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import Route, WebSocketRoute, compile_path

from holdfast.callers.types import Scope

NEEDS: Final[Mapping[str, Scope]] = {
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
    "GET /v1/threads/{key}/diff": Scope.USE,  # they wake the sandbox
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
    "GET /healthz": Scope.READ,  # these two are open on loopback; the scope is for callers from elsewhere
    "GET /metrics": Scope.ADMIN,
}

OPEN: Final = frozenset({"GET /docs", "GET /openapi.json", "GET /v1/files/{token}", "PUT /v1/files/{token}"})
"""For everybody, without a key; a link to a file carries its own proof."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a request needs: a scope, and the session that it is about, if any."""

    scope: Scope
    session_id: str | None = None


_Rules = Mapping[str, tuple[tuple[re.Pattern[str], Scope], ...]]


def _compiled() -> _Rules:
    rules: dict[str, tuple[tuple[re.Pattern[str], Scope], ...]] = {}
    for route, scope in NEEDS.items():
        method, path = route.split(" ")
        rules[method] = (*rules.get(method, ()), (compile_path(path)[0], scope))
    return rules


_RULES: Final = _compiled()


def need_of(method: str, path: str) -> Need | None:
    """What this request needs; None if no rule fits. If several do, the strictest counts, whatever the router takes."""
    need: Need | None = None
    for pattern, scope in _RULES.get("GET" if method == "HEAD" else method, ()):
        found = pattern.match(path)
        if found is not None:
            session_id = found.groupdict().get("session_id")
            need = Need(scope, session_id) if need is None else _both(need, Need(scope, session_id))
    return need


def _both(one: Need, other: Need) -> Need:
    stricter = one.scope if one.scope.includes(other.scope) else other.scope
    return Need(stricter, one.session_id or other.session_id)


def routes_of(app: FastAPI) -> Iterator[str]:
    """Every route as the table writes it; a WebSocket as ``WS``, what is no route at all (a mount) as ``ANY``."""
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if isinstance(route, Route):
            yield from (f"{method} {context.path}" for method in (context.methods or {"ANY"}) - {"HEAD"})
        else:
            yield f"{'WS' if isinstance(route, WebSocketRoute) else 'ANY'} {context.path}"


def check_complete(app: FastAPI) -> None:
    """Raises ``RuntimeError`` if a route has no rule, or hides from the guard which session it is about."""
    for route in routes_of(app):
        if route not in NEEDS and route not in OPEN:
            raise RuntimeError(f"{route} has no scope: say in api/edge/access.py who may use it")
        path = route.partition(" ")[2]
        if path.startswith("/v1/sessions/") and not path.startswith("/v1/sessions/{session_id}"):
            raise RuntimeError(f"{route}: what is below /v1/sessions/ must begin with {{session_id}}")
