"""The app in memory, with fake services behind it and a client that has the key."""

import time
from collections.abc import AsyncIterator

import httpx2
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from fakes.api_server import KEY
from fakes.events import FakeEvents
from fakes.file_service import FakeFiles
from fakes.kept_services import FakeSnapshots, FakeStrays, FakeWorkspaces
from fakes.key_store import key_ring
from fakes.session_service import FakeCommands, FakeImages, FakeSessions
from holdfast.api import ApiSettings, create_app
from holdfast.api.files.links import FileLinks
from holdfast.callers.ring import KeyRing


@pytest.fixture
def sessions() -> FakeSessions:
    return FakeSessions()


@pytest.fixture
def events() -> FakeEvents:
    return FakeEvents(endless=False)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def keys() -> KeyRing:
    return key_ring(KEY)


@pytest.fixture
def files(sessions: FakeSessions) -> FakeFiles:
    return FakeFiles(sessions)


@pytest.fixture
def links() -> FileLinks:
    return FileLinks(b"secret", time.time, lambda _key: True)


@pytest.fixture
def app(
    sessions: FakeSessions,
    keys: KeyRing,
    events: FakeEvents,
    files: FakeFiles,
    links: FileLinks,
    registry: CollectorRegistry,
) -> FastAPI:
    settings = ApiSettings(max_body_bytes=4 * 1024 * 1024, max_content_bytes=2 * 1024 * 1024)
    return create_app(
        sessions,
        keys=keys,
        settings=settings,
        images=FakeImages(),
        snapshots=FakeSnapshots(sessions),
        workspaces=FakeWorkspaces(sessions),
        strays=FakeStrays(),
        commands=FakeCommands(sessions),
        events=events,
        files=files,
        links=links,
        registry=registry,
    )


@pytest.fixture
async def stranger(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    """A client on loopback without a key."""
    transport = httpx2.ASGITransport(app, client=("127.0.0.1", 5000))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app, client=("127.0.0.1", 5000))
    headers = {b"authorization": b"Bearer " + KEY.encode()}
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        yield client


@pytest.fixture
async def session_id(client: httpx2.AsyncClient) -> str:
    return str((await client.post("/v1/sessions")).json()["id"])
