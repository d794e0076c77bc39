"""Reads the body of fs/write as it arrives.

A 64 MB file is 85 MB of base64 inside one JSON string. Collecting that, parsing it and then decoding it would cost
three copies and half a second of a blocked event loop. So the object's head is matched up to the opening quote of
``content_base64`` or ``content``; what follows is decoded chunk by chunk until the closing quote; and what is left of
the object, which is little, is parsed as usual. What does not fit that plan is collected and parsed whole, if it is
little, too.
"""

import asyncio
import re
from dataclasses import dataclass

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from holdfast.api.edge.json_bounds import check_json
from holdfast.api.sessions.models import FileWrite, mode_bits
from holdfast.api.wire.json_text import JsonString
from holdfast.api.wire.text import from_base64
from holdfast.errors import BadInput, TooLarge

_STRING = rb'"(?:[^"\\]|\\.)*"'
_HEAD = re.compile(
    rb'\s*\{(?:(?!\s*"content(?:_base64)?"\s*:\s*")\s*' + _STRING + rb"\s*:\s*(?:" + _STRING + rb"|[-+.\w]+)\s*,)*"
    rb'\s*"(content(?:_base64)?)"\s*:\s*"',
    re.DOTALL,
)
_KEY = re.compile(rb'"content(?:_base64)?"\s*:\s*"')
_MAX_HEAD = 64 * 1024
MAX_REST = 1024 * 1024
"""Of all but the content."""
_AT_ONCE = 256 * 1024


@dataclass(frozen=True, slots=True)
class FileUpload:
    path: str
    data: bytes
    mode: int | None


class FileBody:
    """Feed it the chunks of a body, then ``finish``. Raises ``BadInput`` as soon as the content is seen to be wrong."""

    def __init__(self) -> None:
        self._whole: bytearray | None = None  # set once the body must be parsed in one piece
        self._head = b""
        self._content: _Base64 | _Plain | None = None
        self._tail = bytearray()

    def feed(self, chunk: bytes) -> None:
        """A chunk is as large as a socket gives it."""
        if self._whole is not None:
            self._whole += chunk
        elif self._content is None:
            self._head += chunk
            self._look_for_content()
        elif self._content.rest is None:
            self._content.feed(chunk)
            self._tail += self._content.rest or b""
        else:
            self._tail += chunk
        if len(self._tail) > MAX_REST or (self._whole is not None and len(self._whole) > MAX_REST):
            raise TooLarge(f"all but the content of a file has more than {MAX_REST} bytes; send the content first")

    async def finish(self) -> FileUpload:
        if self._content is not None and self._content.rest is not None:
            body = await _parse(self._head + b'"' + self._tail)
            if not (body.content or body.content_base64):  # else a second one came later; in JSON the last one counts
                return FileUpload(body.path, await join(self._content.parts), mode_bits(body.mode))
        else:
            body = await _parse(bytes(self._whole) if self._whole is not None else self._head)
        if body.content is not None:
            return FileUpload(body.path, body.content.encode(), mode_bits(body.mode))
        return FileUpload(body.path, _decode(body.content_base64 or ""), mode_bits(body.mode))

    def _look_for_content(self) -> None:
        if _KEY.search(self._head):  # so the pattern is tried once, not per chunk
            if match := _HEAD.match(self._head):
                rest = self._head[match.end() :]
                self._head = self._head[: match.end()]
                self._content = _Plain() if match[1] == b"content" else _Base64()
                self._content.feed(rest)
                self._tail += self._content.rest or b""
            else:
                self._whole = bytearray(self._head)
        elif len(self._head) > _MAX_HEAD:
            self._whole = bytearray(self._head)


class _Plain:
    """Text, kept as UTF-8."""

    def __init__(self) -> None:
        self._text = JsonString()
        self.parts: list[bytes] = []

    @property
    def rest(self) -> bytes | None:
        return self._text.rest

    def feed(self, chunk: bytes) -> None:
        try:
            self.parts.append(self._text.feed(chunk))
        except ValueError:
            raise _no_json() from None


class _Base64:
    """Any bytes. Hardly anybody escapes what is in base64 (some do: its slashes), so that has a way of its own."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.rest: bytes | None = None
        self._escaped: JsonString | None = None
        self._carry = b""
        self._padded = False

    def feed(self, chunk: bytes) -> None:
        if self._escaped is None:
            end = chunk.find(b'"')
            piece = chunk if end < 0 else chunk[:end]
            if b"\\" not in piece:
                self.rest = None if end < 0 else chunk[end + 1 :]
                self._take(piece)
                return
            self._escaped = JsonString()
        try:
            text = self._escaped.feed(chunk)
        except ValueError:
            raise _no_json() from None
        self.rest = self._escaped.rest
        self._take(text)

    def _take(self, piece: bytes) -> None:
        text = self._carry + piece
        usable = len(text) if self.rest is not None else len(text) & ~3
        self._carry = text[usable:]
        if not usable:
            return
        if self._padded:
            raise BadInput("content_base64: not valid base64 (data after the padding)")
        data = _decode(text[:usable])
        self._padded = len(data) * 4 != usable * 3
        self.parts.append(data)


async def join(parts: list[bytes]) -> bytes:
    """Join the parts. Large ones are joined in a thread, so that nobody waits for the copy."""
    if sum(map(len, parts)) <= _AT_ONCE:
        return b"".join(parts)
    return await asyncio.to_thread(b"".join, parts)


def _decode(text: str | bytes) -> bytes:
    try:
        return from_base64(text)
    except ValueError as exc:
        raise BadInput(f"content_base64: {exc}") from None


def _no_json() -> RequestValidationError:
    return RequestValidationError([{"type": "json_invalid", "loc": ("body",), "msg": "not JSON"}])


async def _parse(body: bytes) -> FileWrite:
    await check_json(body)
    try:
        return FileWrite.model_validate_json(body)
    except ValidationError as exc:
        errors = exc.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**error, "loc": ("body", *error["loc"])} for error in errors]) from None
