"""Which scope a request needs. Each route says it where it is written (``wire/routes``); here they are put together.

The guard asks before the framework has chosen a route, and before a body is read; WebSockets (``WS``) and plain routes
are covered as well. Whose a session is is checked for every route with ``{session_id}`` in it; whose a snapshot or
workspace is, by the service that looks it up; a thread's key names one of the caller's own. A route without a scope
cannot be forgotten: the application is not built. If one is added later all the same, only admins reach it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import Route, WebSocketRoute, compile_path

from holdfast.callers.types import Scope


@dataclass(frozen=True, slots=True)
class Need:
    """What a request needs: a scope, and the session that it is about, if any."""

    scope: Scope
    session_id: str | None = None


class Access:
    """What each route needs, by method and path as ``Routes.scopes`` has them; None is open for everybody."""

    def __init__(self, scopes: Mapping[str, Scope | None]) -> None:
        self.scopes = scopes
        self._rules: dict[str, list[tuple[re.Pattern[str], Scope]]] = {}
        for route, scope in scopes.items():
            if scope is not None:
                method, path = route.split(" ")
                self._rules.setdefault(method, []).append((compile_path(path)[0], scope))

    def need_of(self, method: str, path: str) -> Need | None:
        """Return what this request needs; None if no route that needs a key fits. If several do, the strictest counts,
        whatever the router takes."""
        need: Need | None = None
        for pattern, scope in self._rules.get("GET" if method == "HEAD" else method, ()):
            found = pattern.match(path)
            if found is not None:
                other = Need(scope, found.groupdict().get("session_id"))
                need = other if need is None else _both(need, other)
        return need

    def check_complete(self, app: FastAPI) -> None:
        """Raises ``RuntimeError`` if a route says no scope, or hides from the guard which session it is about."""
        for route in routes_of(app):
            if route not in self.scopes:
                raise RuntimeError(f"{route} has no scope: make it with api/wire/routes.py, and say who may use it")
            path = route.partition(" ")[2]
            if path.startswith("/v1/sessions/") and not path.startswith("/v1/sessions/{session_id}"):
                raise RuntimeError(f"{route}: what is below /v1/sessions/ must begin with {{session_id}}")


def _both(one: Need, other: Need) -> Need:
    stricter = one.scope if one.scope.includes(other.scope) else other.scope
    return Need(stricter, one.session_id or other.session_id)


def routes_of(app: FastAPI) -> Iterator[str]:
    """Yield every route by method and path; a WebSocket as ``WS``, what is no route at all (a mount) as ``ANY``."""
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if isinstance(route, Route):
            yield from (f"{method} {context.path}" for method in (context.methods or {"ANY"}) - {"HEAD"})
        else:
            yield f"{'WS' if isinstance(route, WebSocketRoute) else 'ANY'} {context.path}"
