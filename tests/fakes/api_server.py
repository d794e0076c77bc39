"""The real API on a real loopback port, with fake services behind it."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from fakes.events import FakeEvents
from fakes.file_service import FakeFiles
from fakes.kept_services import FakeSnapshots, FakeStrays, FakeWorkspaces
from fakes.key_store import key_ring
from fakes.session_service import FakeCommands, FakeImages, FakeSessions
from holdfast.api import ApiSettings, create_app
from holdfast.api.files.links import FileLinks

KEY = "test-key-ünïcode"


@dataclass(frozen=True)
class RunningApi:
    url: str
    key: str
    sessions: FakeSessions
    images: FakeImages
    events: FakeEvents
    files: FakeFiles


@contextmanager
def running_api(settings: ApiSettings | None = None) -> Iterator[RunningApi]:
    sessions, images, events = FakeSessions(), FakeImages(), FakeEvents()
    files = FakeFiles(sessions)
    app = create_app(
        sessions,
        keys=key_ring(KEY),
        settings=settings or ApiSettings(),
        images=images,
        snapshots=FakeSnapshots(sessions),
        workspaces=FakeWorkspaces(sessions),
        strays=FakeStrays(),
        commands=FakeCommands(sessions),
        events=events,
        files=files,
        links=FileLinks(b"secret", time.time, lambda _key: True),
    )
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield RunningApi(f"http://127.0.0.1:{listener.getsockname()[1]}", KEY, sessions, images, events, files)
        finally:
            events.hang_up = True
            server.should_exit = True
            thread.join(30)
