"""WebDriver BiDi, as far as the tests need it: commands and events by one WebSocket, in threads."""

import contextlib
import itertools
import json
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

SECONDS = 60.0


class BidiError(Exception):
    """The browser's own word for what went wrong comes first."""


class Bidi:
    """``on_event`` is called in a thread of its own, with the name of an event and its parameters."""

    def __init__(self, url: str, on_event: Callable[[str, dict[str, Any]], None]) -> None:
        self._open = contextlib.ExitStack()
        self._socket = self._open.enter_context(connect(url, max_size=64 << 20, proxy=None, open_timeout=SECONDS))
        self._on_event = on_event
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._reader = threading.Thread(target=self._read, name="bidi", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            for text in self._socket:
                message = json.loads(text)
                if message["type"] == "event":
                    self._on_event(message["method"], message["params"])
                elif (future := self._waiting.pop(message.get("id") or 0, None)) is not None:
                    if message["type"] == "success":
                        future.set_result(message["result"])
                    else:
                        future.set_exception(BidiError(f"{message['error']}: {message.get('message')}"))
        for future in list(self._waiting.values()):
            future.cancel()

    def call(self, method: str, **params: object) -> Any:
        """Return the result. Raises ``BidiError``."""
        number = next(self._ids)
        self._waiting[number] = future = Future[Any]()
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        return future.result(SECONDS)

    def close(self) -> None:
        self._open.close()
        self._reader.join(SECONDS)


def plain(value: dict[str, Any]) -> Any:
    """Return a value of the protocol as JSON would have it."""
    kind, inner = value["type"], value.get("value")
    if kind == "array":
        return [plain(one) for one in inner or []]
    if kind == "object":
        return {key: plain(one) for key, one in inner or []}
    return inner
