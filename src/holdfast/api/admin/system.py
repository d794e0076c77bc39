"""The daemon about itself: health, metrics and the documentation page."""

import asyncio
import functools
import json
from collections.abc import Callable
from importlib import resources

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.responses import Response

from holdfast import __version__
from holdfast.api.sessions.models import Health
from holdfast.api.wire.common import reply
from holdfast.api.wire.routes import ADMIN, OPEN, READ, Routes

_CSP = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"


def router(registry: CollectorRegistry, openapi: Callable[[], object], node: str | None = None) -> Routes:
    routes = Routes("system")
    document = functools.cache(lambda: json.dumps(openapi(), ensure_ascii=False).encode())
    page = resources.files("holdfast.api.admin").joinpath("docs.html").read_bytes()

    # These two are open on loopback; the scope is for callers from elsewhere.
    @routes.get("/healthz", "Is the daemon up?", scope=READ, returns=Health)
    async def get_health() -> Response:
        """Say whether the daemon works. This is open on loopback; from elsewhere it needs the key."""
        return reply(Health(version=__version__, node=node))

    @routes.get("/metrics", "Prometheus metrics", scope=ADMIN)
    async def get_metrics() -> Response:
        """Return figures for Prometheus. This is open on loopback; from elsewhere it needs the key."""
        return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    @routes.get("/openapi.json", "This document", scope=OPEN, in_schema=False)
    async def openapi_json() -> Response:
        return Response(await asyncio.to_thread(document), media_type="application/json")

    @routes.get("/docs", "The documentation page", scope=OPEN, in_schema=False)
    async def docs() -> Response:
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": _CSP})

    return routes
