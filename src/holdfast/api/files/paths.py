"""Paths as requests carry them. A name in Linux is bytes; most are UTF-8, and those that are not must work too.

In JSON each byte that is no UTF-8 is a lone surrogate, ``\\udc80`` to ``\\udcff``, as Python's ``surrogateescape`` has
it. In a query it is what it always was, ``%80`` to ``%FF``.
"""

import base64
import binascii
import posixpath
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import Depends, Query, Request
from pydantic import PlainValidator, WithJsonSchema

from holdfast.api.edge.caller import caller_in
from holdfast.errors import BadInput, Forbidden

MAX_PATH = 4096
_LIVE = ("/proc", "/sys", "/dev")
"""What is no file: there, processes show what they were started with."""
_SCHEMA: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": MAX_PATH, "pattern": "^/[^\\x00]*$"}


def check_path(value: object) -> str:
    """Return the value itself. Raises ``ValueError`` unless it names a place in a sandbox."""
    if not isinstance(value, str):
        raise ValueError("must be a string")
    if not value.startswith("/"):
        raise ValueError("must be absolute, starting with /")
    if "\0" in value:
        raise ValueError("must not contain a NUL character")
    try:
        size = len(value.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise ValueError("must be UTF-8, or have \\udc80 to \\udcff for bytes that are not") from None
    if size > MAX_PATH:
        raise ValueError(f"must not be longer than {MAX_PATH} bytes")
    return value


JsonPath = Annotated[str, PlainValidator(check_path), WithJsonSchema(_SCHEMA)]


async def _query_path(
    request: Request, path: Annotated[str, Query(description="Absolute; bytes that are no UTF-8 as %80 to %FF")]
) -> str:
    try:
        checked = check_path(_raw(request, "path") if "\ufffd" in path else path)
    except ValueError as error:
        raise BadInput(f"path: {error}") from None
    check_visible(request, checked)
    return checked


def check_visible(request: Request, path: str) -> None:
    """Raises ``Forbidden`` where a key that may only look would see more than files: environments of processes."""
    caller = caller_in(request.scope)
    if caller is None or caller.sees_secrets:
        return
    plain = posixpath.normpath("/" + path.lstrip("/"))
    archived = request.url.path.endswith("/fs/archive") and plain == "/"
    if archived or ".." in path.split("/") or any(plain == one or plain.startswith(one + "/") for one in _LIVE):
        raise Forbidden(f"a key with scope read sees no {', '.join(_LIVE)}, and no path with ..; this needs scope use")


async def _pattern(
    request: Request, pattern: Annotated[str, Query(min_length=1, description="Relative to path, such as **/*.py")]
) -> str:
    raw = _raw(request, "pattern") if "\ufffd" in pattern else pattern
    if len(raw) > MAX_PATH or "\0" in raw:
        raise BadInput(f"pattern: must be at most {MAX_PATH} characters, without NUL")
    return raw


def _raw(request: Request, name: str) -> str:
    """Return a query's value with the bytes that the framework would replace."""
    query = str(request.scope["query_string"], "latin-1")
    return dict(parse_qsl(query, keep_blank_values=True, errors="surrogateescape"))[name]


def to_cursor(after: str | None) -> str | None:
    """Return where a page ended, as a text that fits into a URL."""
    if after is None:
        return None
    return base64.urlsafe_b64encode(after.encode("utf-8", "surrogateescape")).decode()


def from_cursor(cursor: str | None) -> str | None:
    if cursor is None:
        return None
    try:
        after = base64.b64decode(cursor.encode(), b"-_", validate=True).decode("utf-8", "surrogateescape")
    except (binascii.Error, UnicodeEncodeError):
        after = ""
    if not after or "\0" in after or after.startswith("/") or ".." in after.split("/"):
        raise BadInput("cursor: must be the next_cursor of the page before")
    return after


QueryPath = Annotated[str, Depends(_query_path)]
QueryPattern = Annotated[str, Depends(_pattern)]
