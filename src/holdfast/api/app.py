"""Builds the ASGI application. Nothing here opens a port or a file."""

from collections.abc import Callable, Iterator
from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware

from holdfast import __version__
from holdfast.api.admin import events as event_routes
from holdfast.api.admin import images as image_routes
from holdfast.api.admin import keys as key_routes
from holdfast.api.admin import system
from holdfast.api.edge import failures
from holdfast.api.edge.access import Access
from holdfast.api.edge.auth import SIGNED, Guard
from holdfast.api.edge.body_limit import BodyLimit
from holdfast.api.edge.request_context import HttpMetrics, RequestContext
from holdfast.api.exec import routes as exec_routes
from holdfast.api.exec import streams
from holdfast.api.exec.lane import ExecLane
from holdfast.api.files import content, entries
from holdfast.api.files import routes as file_routes
from holdfast.api.gateway import links as link_routes
from holdfast.api.gateway import services as service_routes
from holdfast.api.gateway import tunnels as tunnel_routes
from holdfast.api.openapi.described import describe_fields
from holdfast.api.openapi.examples import add_examples
from holdfast.api.processes import ports as port_routes
from holdfast.api.processes import routes as process_routes
from holdfast.api.processes import terminal
from holdfast.api.services import Services
from holdfast.api.sessions import copies
from holdfast.api.sessions import routes as session_routes
from holdfast.api.settings import ApiSettings
from holdfast.api.threads import commands as thread_commands
from holdfast.api.threads import events as thread_events
from holdfast.api.threads import files as thread_files
from holdfast.api.threads import routes as thread_routes
from holdfast.api.threads import usage
from holdfast.api.wire import websockets
from holdfast.api.wire.routes import Routes
from holdfast.gateway.proxies import BehindProxies, TrustedProxies


def create_app(services: Services, settings: ApiSettings) -> FastAPI:
    """Build the whole API."""
    nouns = list(_nouns(services, settings, lambda: app.openapi()))
    access = Access({route: scope for routes in nouns for route, scope in routes.scopes.items()})
    sessions, keys = services.sessions, services.keys
    app = FastAPI(
        title="Holdfast",
        version=__version__,
        description="Durable, isolated Linux sandboxes with a stateful shell.",
        docs_url=None,  # the framework's pages load scripts from elsewhere; ours works offline
        openapi_url=None,  # ours is written once, and not in the event loop
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # ours are /metrics and the log, and no others
        middleware=[
            Middleware(BehindProxies, trusted=TrustedProxies(settings.trusted_proxies), public_url=settings.public_url),
            Middleware(RequestContext, metrics=HttpMetrics(services.registry)),
            Middleware(Guard, keys=keys, sessions=sessions, access=access, links=services.gateway.links),
            Middleware(BodyLimit, settings=settings),
            Middleware(ExecLane, service=sessions),
        ],
    )
    failures.install(app, access)
    websockets.install(app)
    for routes in nouns:
        app.include_router(routes.router)
    access.check_complete(app)
    app.state.access = access
    _describe(app)
    return app


def _nouns(services: Services, settings: ApiSettings, openapi: Callable[[], object]) -> Iterator[Routes]:
    """Yield all routes, in the order in which they are tried."""
    sessions, threads = services.sessions, services.threads
    yield session_routes.router(sessions, services.gateway, settings)
    yield exec_routes.router(sessions)
    yield file_routes.router(sessions)
    yield content.router(sessions.files, services.links, settings)
    yield entries.router(sessions.files)
    yield streams.router(sessions.commands)
    yield process_routes.router(sessions.processes)
    yield terminal.router(sessions.processes)
    yield port_routes.router(sessions.ports)
    yield link_routes.router(services.gateway.links, services.gateway.tunnels, services.gateway.visits, sessions)
    yield tunnel_routes.router(services.gateway.tunnels, services.gateway.links)
    yield service_routes.router(services.gateway.services, services.gateway.links)
    yield image_routes.router(services.images)
    yield copies.snapshots_router(sessions.snapshots)
    yield copies.workspaces_router(sessions.workspaces)
    yield copies.strays_router(sessions.strays)
    yield thread_routes.router(threads, services.gateway, settings)
    yield thread_commands.router(threads)
    yield thread_events.router(threads, settings)
    yield thread_files.router(threads)
    yield usage.router(threads, settings)
    yield key_routes.router(services.keys)
    yield event_routes.router(services.events, settings)
    yield system.router(services.registry, openapi, settings.node)


def _describe(app: FastAPI) -> None:
    """Add to OpenAPI what the framework does not know: the key, which is checked before routing, and failures."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = generate()
            components = schema.setdefault("components", {})
            components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            components.setdefault("schemas", {}).update(failures.schemas())
            for path, operations in schema["paths"].items():
                if path.startswith("/v1/") and not path.startswith(SIGNED):
                    for operation in operations.values():
                        operation["security"] = [{"key": []}]
            describe_fields(schema)
            add_examples(schema)
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # how FastAPI wants it to be extended
