"""The app on a host of its own for each test, and clients with and without the key."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest
import structlog

from holdfast.api import ApiSettings
from holdfast.callers.ring import KeyRing
from support.api_host import ApiHost, open_api

SETTINGS = ApiSettings(max_body_bytes=4 * 1024 * 1024, max_content_bytes=2 * 1024 * 1024)


@pytest.fixture(scope="session", autouse=True)
def plain_tracebacks() -> Iterator[None]:
    """Those with all variables in them take seconds."""
    *others, _console = structlog.get_config()["processors"]
    console = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*others, console])
    yield
    structlog.reset_defaults()


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[ApiHost]:
    async with open_api(tmp_path, SETTINGS) as host:
        yield host


@pytest.fixture
def keys(host: ApiHost) -> KeyRing:
    return host.keys


@pytest.fixture
async def stranger(host: ApiHost) -> AsyncIterator[httpx2.AsyncClient]:
    """A client on loopback without a key."""
    async with host.client(key=None) as client:
        yield client


@pytest.fixture
async def client(host: ApiHost) -> AsyncIterator[httpx2.AsyncClient]:
    async with host.client() as client:
        yield client


@pytest.fixture
async def session_id(client: httpx2.AsyncClient) -> str:
    return str((await client.post("/v1/sessions")).json()["id"])
