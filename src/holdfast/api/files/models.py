"""Requests and replies of the file routes."""

import asyncio
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StrictBool
from starlette.responses import Response

from holdfast.api.files.paths import JsonPath, to_cursor
from holdfast.api.sessions.models import Mode, mode_bits
from holdfast.api.wire.models import Request
from holdfast.api.wire.pieces import JSON, PiecesReply, batched
from holdfast.api.wire.text import Timestamp, timestamp
from holdfast.sessions.use.file_types import Change, Entry, EntryKind

WEEK = 7 * 24 * 3600
_AT_ONCE = 200
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""The years 1 to 9999: a file may be of any time, a timestamp may not."""

FileMode = Mode | Annotated[int, Field(strict=True, ge=0, le=0o7777)]


class MakeFolder(Request):
    path: JsonPath
    parents: StrictBool = Field(default=False, description="Make those above it too, and accept that it exists")
    mode: FileMode | None = None

    @property
    def bits(self) -> int | None:
        return mode_bits(self.mode)


class Move(Request):
    source: JsonPath
    target: JsonPath = Field(description="The new path in full, also for a folder")
    overwrite: StrictBool = Field(default=False, description="Replace a file; a folder is never replaced")


class Copy(Move):
    recursive: StrictBool = Field(default=False, description="Needed for a folder")


class Remove(Request):
    path: JsonPath
    recursive: StrictBool = Field(default=False, description="Needed for a folder that is not empty")


class ChangeMode(Request):
    path: JsonPath
    mode: FileMode
    recursive: StrictBool = Field(default=False, description="Also all that is below, folders included")

    @property
    def bits(self) -> int:
        bits = mode_bits(self.mode)
        assert bits is not None
        return bits


class MakeLink(Request):
    path: JsonPath
    method: Literal["GET", "PUT"] = "GET"
    expires_seconds: Annotated[int, Field(strict=True, gt=0, le=WEEK)] = 3600


class LinkOut(BaseModel):
    url: str
    expires_at: Timestamp


class EntryOut(BaseModel):
    """One file, folder or link. ``target`` is there for links only."""

    path: str
    kind: EntryKind
    size: int
    mode: str
    uid: int
    gid: int
    mtime: Timestamp
    target: str | None


class EntryPage(BaseModel):
    entries: list[EntryOut]
    next_cursor: str | None


class UnpackedOut(BaseModel):
    path: str
    files: int
    bytes: int


class Removed(BaseModel):
    ok: Literal[True] = True


def entry_json(entry: Entry) -> dict[str, Any]:
    return {
        "path": entry.path,
        "kind": entry.kind,
        "size": entry.size,
        "mode": f"{entry.mode:04o}",
        "uid": entry.uid,
        "gid": entry.gid,
        "mtime": timestamp(min(max(entry.mtime, _FIRST), _LAST)),
        "target": entry.target,
    }


def change_json(change: Change) -> dict[str, Any]:
    told = {"path": change.path, "directory": change.directory}
    return told if change.target is None else {**told, "target": change.target}


async def page_reply(entries: list[Entry], after: str | None) -> Response:
    pieces = [b'{"entries":[']
    between = b""
    for some in batched(entries, _AT_ONCE):
        pieces.append(between + b",".join([ascii_json(entry_json(entry)).encode() for entry in some]))
        between = b","
        await asyncio.sleep(0)
    return PiecesReply([*pieces, b'],"next_cursor":%b}' % ascii_json(to_cursor(after)).encode()], JSON)


def ascii_json(value: object) -> str:
    """Names may hold what no UTF-8 can: written as ASCII, everything goes."""
    return json.dumps(value, separators=(",", ":"))


def json_reply(value: object) -> Response:
    return Response(ascii_json(value), media_type="application/json")
