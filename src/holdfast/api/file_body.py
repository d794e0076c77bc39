"""Reads the body of fs/write as it arrives.

A 64 MB file is 85 MB of base64 inside one JSON string. Collecting that, parsing it and then decoding it would cost
three copies and half a second of a blocked event loop. So the object's head is matched up to the opening quote of
``content_base64``; what follows is decoded chunk by chunk until the closing quote; and what is left of the object
is parsed as usual. What does not fit that plan (text content, escapes inside the base64) is collected and parsed
whole.
"""

import re
from dataclasses import dataclass

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from holdfast.api.models import FileWrite, mode_bits
from holdfast.api.text import from_base64, to_base64
from holdfast.errors import BadInput

_STRING = rb'"(?:[^"\\]|\\.)*"'
_HEAD = re.compile(
    rb"\s*\{(?:(?!\s*\"content_base64\")\s*" + _STRING + rb"\s*:\s*(?:" + _STRING + rb"|[-+.\w]+)\s*,)*"
    rb'\s*"content_base64"\s*:\s*"',
    re.DOTALL,
)
_KEY = b'"content_base64"'
_MAX_HEAD = 64 * 1024


@dataclass(frozen=True, slots=True)
class FileUpload:
    path: str
    data: bytes
    mode: int | None


class FileBody:
    """Feed it the chunks of a body, then ``finish``. Raises ``BadInput`` as soon as the base64 is seen to be wrong."""

    def __init__(self) -> None:
        self._whole: list[bytes] | None = None  # set once the body must be parsed in one piece
        self._head = b""
        self._in_content = False
        self._tail: bytearray | None = None
        self._parts: list[bytes] = []
        self._carry = b""
        self._padded = False

    def feed(self, chunk: bytes) -> None:
        if self._whole is not None:
            self._whole.append(chunk)
        elif self._tail is not None:
            self._tail += chunk
        elif self._in_content:
            self._content(chunk)
        else:
            self._head += chunk
            self._look_for_content()

    def finish(self) -> FileUpload:
        if self._whole is None and self._tail is not None:
            body = _parse(self._head + b'"' + self._tail)
            if not body.content_base64:  # else a second content_base64 came later; in JSON the last one counts
                return FileUpload(body.path, b"".join(self._parts), mode_bits(body.mode))
        else:
            body = _parse(b"".join(self._whole) if self._whole is not None else self._head)
        if body.content is not None:
            return FileUpload(body.path, body.content.encode(), mode_bits(body.mode))
        return FileUpload(body.path, _decode(body.content_base64 or ""), mode_bits(body.mode))

    def _look_for_content(self) -> None:
        key = self._head.find(_KEY)
        if key >= 0 and self._head.find(b'"', key + len(_KEY)) >= 0:  # so the pattern is tried once, not per chunk
            if match := _HEAD.match(self._head):
                rest = self._head[match.end() :]
                self._head = self._head[: match.end()]
                self._in_content = True
                self._content(rest)
            else:
                self._whole = [self._head]
        elif len(self._head) > _MAX_HEAD:
            self._whole = [self._head]

    def _content(self, chunk: bytes) -> None:
        end = chunk.find(b'"')
        piece = chunk if end < 0 else chunk[:end]
        if b"\\" in piece:
            self._whole = [self._head, to_base64(b"".join(self._parts)), self._carry, chunk]
            return
        text = self._carry + piece
        usable = len(text) if end >= 0 else len(text) & ~3
        self._carry = text[usable:]
        self._take(text[:usable])
        if end >= 0:
            self._tail = bytearray(chunk[end + 1 :])

    def _take(self, text: bytes) -> None:
        if not text:
            return
        if self._padded:
            raise BadInput("content_base64: not valid base64 (data after the padding)")
        data = _decode(text)
        self._padded = len(data) * 4 != len(text) * 3
        self._parts.append(data)


def _decode(text: str | bytes) -> bytes:
    try:
        return from_base64(text)
    except ValueError as exc:
        raise BadInput(f"content_base64: {exc}") from None


def _parse(body: bytes) -> FileWrite:
    try:
        return FileWrite.model_validate_json(body)
    except ValidationError as exc:
        errors = exc.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**error, "loc": ("body", *error["loc"])} for error in errors]) from None
