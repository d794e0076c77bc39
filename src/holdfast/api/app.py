"""Builds the ASGI application from a session service. Nothing here opens a port or a file."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.middleware import Middleware

from holdfast import __version__
from holdfast.api import failures
from holdfast.api.auth import SIGNED, Guard, Key
from holdfast.api.body_limit import BodyLimit
from holdfast.api.file_links import FileLinks
from holdfast.api.file_ports import FileService
from holdfast.api.metrics import HttpMetrics
from holdfast.api.ports import ImageService, SessionService
from holdfast.api.request_context import RequestContext
from holdfast.api.routes import execs, file_content, file_entries, sessions, system
from holdfast.api.routes import files as file_routes
from holdfast.api.routes import images as image_routes
from holdfast.api.settings import ApiSettings

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_app(
    service: SessionService,
    *,
    api_key: str,
    settings: ApiSettings,
    images: ImageService | None = None,
    files: FileService | None = None,
    links: FileLinks | None = None,
    registry: CollectorRegistry | None = None,
    lifespan: Lifespan | None = None,
) -> FastAPI:
    """The whole API. Without ``images`` there are no image routes, without ``files`` and ``links`` only fs/read and
    fs/write; ``registry`` is what /metrics shows."""
    registry = registry if registry is not None else CollectorRegistry()
    app = FastAPI(
        title="Holdfast",
        version=__version__,
        description="Durable, isolated Linux sandboxes with a stateful shell.",
        docs_url=None,  # the framework's pages load scripts from elsewhere; ours works offline
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        middleware=[
            Middleware(RequestContext, metrics=HttpMetrics(registry)),
            Middleware(Guard, key=Key(api_key)),
            Middleware(BodyLimit, settings=settings),
        ],
    )
    failures.install(app)
    app.include_router(sessions.router(service, settings))
    app.include_router(execs.router(service))
    app.include_router(file_routes.router(service))
    if files is not None and links is not None:
        app.include_router(file_content.router(files, links))
        app.include_router(file_entries.router(files))
    if images is not None:
        app.include_router(image_routes.router(images))
    app.include_router(system.router(registry))
    _describe_the_key(app)
    return app


def _describe_the_key(app: FastAPI) -> None:
    """The key is checked before routing, so OpenAPI has to be told of it by hand."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = generate()
            schema.setdefault("components", {})["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            for path, operations in schema["paths"].items():
                if path.startswith("/v1/") and not path.startswith(SIGNED):
                    for operation in operations.values():
                        operation["security"] = [{"key": []}]
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # how FastAPI wants it to be extended
