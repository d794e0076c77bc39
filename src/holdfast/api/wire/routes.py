"""FastAPI's router, with what every route of ours must say: who may use it.

::

    routes = Routes("snapshots")

    @routes.get("/v1/snapshots", "List snapshots", scope=Scope.READ, returns=SnapshotList, fails=(503,))
    async def list_snapshots(caller: CallerOf) -> Response: ...

The name of the function is the route's operation id in OpenAPI. It is for ever: clients that are made from the document
call their functions so.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from holdfast.api.edge.json_load import JsonRoute
from holdfast.api.wire.common import failures
from holdfast.callers.types import Scope

E = TypeVar("E", bound=Callable[..., Any])

SESSION: Final = "/v1/sessions/{session_id}"
READ, USE, ADMIN = Scope
OPEN: Final = None
"""The scope of a route that is for everybody, without a key."""
IN_SESSION: Final = (404, 409, 410, 422, 502, 503)
"""The statuses with which any use of a session may fail."""


class Routes:
    """The routes of one noun. ``scopes`` has what each needs, by method and path: ``GET /v1/keys``; a WebSocket is
    ``WS``."""

    def __init__(self, tag: str) -> None:
        self.router = APIRouter(tags=[tag], route_class=JsonRoute)
        self.scopes: dict[str, Scope | None] = {}

    def get(self, path: str, summary: str, *, head: bool = False, **more: Any) -> Callable[[E], E]:
        """``head`` lets the route answer HEAD as well."""
        return self._route("GET", path, summary, also=("HEAD",) if head else (), **more)

    def post(self, path: str, summary: str, **more: Any) -> Callable[[E], E]:
        return self._route("POST", path, summary, **more)

    def put(self, path: str, summary: str, **more: Any) -> Callable[[E], E]:
        return self._route("PUT", path, summary, **more)

    def delete(self, path: str, summary: str, *, status: int = 204, **more: Any) -> Callable[[E], E]:
        return self._route("DELETE", path, summary, status=status, **more)

    def websocket(self, path: str, *, scope: Scope | None) -> Callable[[E], E]:
        self.scopes[f"WS {path}"] = scope
        return self.router.websocket(path)

    def _route(
        self,
        method: str,
        path: str,
        summary: str,
        *,
        scope: Scope | None,
        returns: type[BaseModel] | None = None,
        status: int = 200,
        fails: Iterable[int] = (),
        responses: Mapping[int | str, dict[str, Any]] | None = None,
        extra: dict[str, Any] | None = None,
        in_schema: bool = True,
        also: Iterable[str] = (),
    ) -> Callable[[E], E]:
        """``returns`` is the model of the reply's JSON, ``responses`` describes replies that are not JSON, ``fails``
        are the statuses of its failures; ``extra`` goes into OpenAPI as it is."""
        self.scopes[f"{method} {path}"] = scope

        def add(endpoint: E) -> E:
            self.router.add_api_route(
                path,
                endpoint,
                methods=[method],
                status_code=status,
                response_model=returns,
                response_class=JSONResponse if returns is not None else Response,
                responses={**failures(*fails), **(responses or {})},
                summary=summary,
                operation_id=endpoint.__name__,
                openapi_extra=extra,
                include_in_schema=in_schema,
            )
            for other in also:
                self.router.add_api_route(path, endpoint, methods=[other], include_in_schema=False)
            return endpoint

        return add
