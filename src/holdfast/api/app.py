"""Builds the ASGI application from a session service. Nothing here opens a port or a file."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.middleware import Middleware

from holdfast import __version__
from holdfast.api.admin import events as event_routes
from holdfast.api.admin import images as image_routes
from holdfast.api.admin import keys as key_routes
from holdfast.api.admin import system
from holdfast.api.edge import access, failures
from holdfast.api.edge.auth import SIGNED, Guard
from holdfast.api.edge.body_limit import BodyLimit
from holdfast.api.edge.metrics import HttpMetrics
from holdfast.api.edge.proxies import BehindProxies, TrustedProxies
from holdfast.api.edge.request_context import RequestContext
from holdfast.api.exec import routes as exec_routes
from holdfast.api.exec import streams
from holdfast.api.exec.lane import ExecLane
from holdfast.api.files import content, entries
from holdfast.api.files import routes as file_routes
from holdfast.api.files.links import FileLinks
from holdfast.api.files.protocols import FileService
from holdfast.api.openapi.described import describe_fields
from holdfast.api.openapi.examples import add_examples
from holdfast.api.processes import ports as port_routes
from holdfast.api.processes import routes as process_routes
from holdfast.api.processes import terminal
from holdfast.api.protocols import (
    CommandService,
    EventService,
    ImageService,
    KeyService,
    SessionService,
    SnapshotService,
    StrayService,
    WorkspaceService,
)
from holdfast.api.sessions import routes as session_routes
from holdfast.api.sessions import snapshots as snapshot_routes
from holdfast.api.sessions import strays as stray_routes
from holdfast.api.sessions import workspaces as workspace_routes
from holdfast.api.settings import ApiSettings
from holdfast.api.threads import commands as thread_commands
from holdfast.api.threads import events as thread_events
from holdfast.api.threads import files as thread_files
from holdfast.api.threads import routes as thread_routes
from holdfast.api.threads import usage
from holdfast.api.wire import websockets
from holdfast.sessions.use.ports import Ports
from holdfast.sessions.use.processes import Processes
from holdfast.threads.service import ThreadService

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_app(
    service: SessionService,
    *,
    keys: KeyService,
    settings: ApiSettings,
    images: ImageService | None = None,
    snapshots: SnapshotService | None = None,
    workspaces: WorkspaceService | None = None,
    strays: StrayService | None = None,
    commands: CommandService | None = None,
    processes: Processes | None = None,
    ports: Ports | None = None,
    events: EventService | None = None,
    files: FileService | None = None,
    links: FileLinks | None = None,
    threads: ThreadService | None = None,
    registry: CollectorRegistry | None = None,
    lifespan: Lifespan | None = None,
) -> FastAPI:
    """The whole API. A service that is not given has no routes; ``registry`` is what /metrics shows."""
    registry = registry if registry is not None else CollectorRegistry()
    app = FastAPI(
        title="Holdfast",
        version=__version__,
        description="Durable, isolated Linux sandboxes with a stateful shell.",
        docs_url=None,  # the framework's pages load scripts from elsewhere; ours works offline
        openapi_url=None,  # ours is written once, and not in the event loop
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # ours are /metrics and the log, and no others
        lifespan=lifespan,
        middleware=[
            Middleware(BehindProxies, trusted=TrustedProxies(settings.trusted_proxies), public_url=settings.public_url),
            Middleware(RequestContext, metrics=HttpMetrics(registry)),
            Middleware(Guard, keys=keys, sessions=service),
            Middleware(BodyLimit, settings=settings),
            Middleware(ExecLane, service=service),
        ],
    )
    failures.install(app)
    websockets.install(app)
    app.include_router(session_routes.router(service, settings))
    app.include_router(exec_routes.router(service))
    app.include_router(file_routes.router(service))
    if files is not None and links is not None:
        app.include_router(content.router(files, links, settings))
        app.include_router(entries.router(files))
    if commands is not None:
        app.include_router(streams.router(commands))
    if processes is not None:
        app.include_router(process_routes.router(processes))
        app.include_router(terminal.router(processes))
    if ports is not None:
        app.include_router(port_routes.router(ports))
    if images is not None:
        app.include_router(image_routes.router(images))
    if snapshots is not None:
        app.include_router(snapshot_routes.router(snapshots))
    if workspaces is not None:
        app.include_router(workspace_routes.router(workspaces))
    if strays is not None:
        app.include_router(stray_routes.router(strays))
    if threads is not None:
        app.include_router(thread_routes.router(threads, settings))
        app.include_router(thread_commands.router(threads))
        app.include_router(thread_events.router(threads, settings))
        app.include_router(thread_files.router(threads))
        app.include_router(usage.router(threads, settings))
    app.include_router(key_routes.router(keys))
    if events is not None:
        app.include_router(event_routes.router(events, settings))
    app.include_router(system.router(registry, lambda: app.openapi(), settings.node))
    access.check_complete(app)
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """What OpenAPI has to be told by hand: the key, since it is checked before routing, and how failures look."""
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
