"""Consumers of ``/v1/events`` for tests: by the standard library, so that they share no code with the SDK."""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from support.daemons.daemon import DaemonProcess

Json = dict[str, Any]

BROKEN = (OSError, http.client.HTTPException)


class Stream:
    """One connection. ``close`` ends it from any thread, also while another one waits for the next event."""

    def __init__(self, daemon: DaemonProcess, after: int | None = None) -> None:
        self._connection = http.client.HTTPConnection(daemon.url.removeprefix("http://"), timeout=60)
        headers = {"Authorization": f"Bearer {daemon.key}"}
        if after is not None:
            headers["Last-Event-ID"] = str(after)
        self._connection.request("GET", "/v1/events", headers=headers)
        self._response = self._connection.getresponse()
        assert self._response.status == 200, self._response.read()

    def __iter__(self) -> Iterator[Json]:
        """Events as they come, until the daemon ends the stream; each is checked for its id."""
        block: dict[str, str] = {}
        while line := self._response.readline():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                block[name] = value
            elif block and "data" in block:
                event: Json = json.loads(block["data"])
                assert (block["event"], block["id"]) == ("session", str(event["seq"])), block
                yield event
            if not name:
                block = {}

    def close(self) -> None:
        if self._connection.sock is not None:
            with contextlib.suppress(OSError):
                self._connection.sock.shutdown(socket.SHUT_RDWR)


class Consumer:
    """Reads for ever in a thread, and comes back by Last-Event-ID whenever the daemon was away."""

    def __init__(self, daemon: DaemonProcess, after: int) -> None:
        self._daemon = daemon
        self._after = after
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._stream: Stream | None = None
        self.seen: list[Json] = []
        self.connections = 0
        self.trouble: BaseException | None = None

    def _read(self) -> None:
        try:
            while not self._stop.is_set():
                with contextlib.suppress(*BROKEN):
                    self._stream = Stream(self._daemon, self.seen[-1]["seq"] if self.seen else self._after)
                    self.connections += 1
                    for event in self._stream:
                        self.seen.append(event)
                self._stop.wait(0.02)
        except BaseException as error:
            self.trouble = error

    def kinds(self, session_id: str) -> list[str]:
        return [event["kind"] for event in list(self.seen) if event["session_id"] == session_id]

    def __enter__(self) -> "Consumer":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        while self._thread.is_alive():
            if self._stream is not None:
                self._stream.close()
            self._thread.join(0.1)
        assert self.trouble is None, self.trouble
