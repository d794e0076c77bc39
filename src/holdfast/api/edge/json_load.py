"""Parses JSON bodies without holding the event loop for long.

To parse a text of megabytes is one call that lets nobody else run. So the long texts of a large body are read first, in
steps, with others in between; a mark stands for each of them in what is then parsed, which is little.
"""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from holdfast.api.edge.json_bounds import AT_ONCE, TURN_SECONDS, end_of_text
from holdfast.api.wire.json_text import JsonString
from holdfast.errors import BadInput

_LONG_BYTES = 64 * 1024
"""A shorter text is parsed where it is: a large body cannot have many of these."""
_QUOTE = b'"'


async def load_json(body: bytes) -> Any:
    """Parse what ``check_json`` has let pass. Raises ``JSONDecodeError``, and ``BadInput`` for a name without end."""
    if len(body) <= AT_ONCE:
        return json.loads(body)
    word = secrets.token_hex(16)
    texts: dict[str, str] = {}
    left: list[bytes] = []
    at = 0
    async for start, end in _long_texts(body):
        if body[end + 1 : end + 100].lstrip().startswith(b":"):
            raise BadInput(f"a name in the body has more than {_LONG_BYTES} bytes")
        mark = f"{word}{len(texts)}"
        texts[mark] = await _read_text(body, start, end)
        left += [body[at:start], mark.encode()]
        at = end
    left.append(body[at:])
    return _restored(json.loads(b"".join(left)), texts)


class JsonRoute(APIRoute):
    """A route whose body is parsed by ``load_json``."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return handle_json


class _JsonRequest(Request):
    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = await load_json(await self.body())
        return self._json


async def _long_texts(body: bytes) -> AsyncIterator[tuple[int, int]]:
    """Yield where the long texts are, without their quotes."""
    since = time.monotonic()
    at = body.find(_QUOTE) + 1
    while at > 0:
        end = end_of_text(body, at)
        while end < len(body) - 1 and body[end : end + 1] != _QUOTE:
            end = end_of_text(body, end)
            if time.monotonic() - since > TURN_SECONDS:
                await asyncio.sleep(0)
                since = time.monotonic()
        if end - at >= _LONG_BYTES and body[end : end + 1] == _QUOTE:
            yield at, end
        at = body.find(_QUOTE, end + 1) + 1


async def _read_text(body: bytes, start: int, end: int) -> str:
    reader = JsonString()
    parts = []
    try:
        for at in range(start, end + 1, AT_ONCE):  # with the quote at its end
            parts.append(reader.feed(body[at : min(at + AT_ONCE, end + 1)]).decode())
            await asyncio.sleep(0)
    except ValueError:
        raise json.JSONDecodeError("not the text of a JSON document", "", start) from None
    return "".join(parts)


def _restored(value: Any, texts: Mapping[str, str]) -> Any:
    match value:
        case str():
            return texts.get(value, value)
        case list():
            return [_restored(one, texts) for one in value]
        case dict():
            return {name: _restored(one, texts) for name, one in value.items()}
        case _:
            return value
