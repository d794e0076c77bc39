"""Lists a folder or a whole tree, in a fixed order, from any point on, with little memory."""

from __future__ import annotations

import os

from holdfast.protocol import compact_json, fields
from holdfast.protocol.frames import Header
from holdfast.runner.refused import Refused
from holdfast.runner.tasks.channel import Channel
from holdfast.runner.tasks.globs import Glob
from holdfast.runner.tasks.metadata import describe, kind_of
from holdfast.runner.tasks.sight import sight_of
from holdfast.runner.tasks.walk import Walk

FRAME = 1 << 16
PAGE = 4 << 20
"""Bytes after which a page ends, even if it has fewer entries than were asked for."""


def list_entries(channel: Channel, header: Header) -> None:
    """Send frames with entries, one JSON object per line, then one with ``end`` and ``more``."""
    top, limit = fields.text(header, "path"), fields.integer(header, "limit")
    kind, after = fields.optional_text(header, "kind"), fields.optional_text(header, "after")
    sight = sight_of(header)
    walk = Walk(
        top,
        after=after.split("/") if after else [],
        recursive=bool(header.get("recursive")),
        hidden=bool(header.get("hidden")),
        glob=_glob(fields.optional_text(header, "pattern")),
        sight=sight,
    )
    page = _Page(channel)
    for relative, info in walk.entries():
        channel.busy()
        if info is None or (kind is not None and kind_of(info) != kind):
            continue
        if page.entries >= limit or page.bytes >= PAGE:
            page.end(more=True)
            return
        page.add(describe(os.path.join(top, relative), info, sight), relative)
    page.end(more=False)


def _glob(pattern: str | None) -> Glob | None:
    try:
        return None if pattern is None else Glob(pattern)
    except ValueError as error:
        raise Refused("bad_input", f"pattern: {error}") from None


class _Page:
    """Collects entries and sends them to the host."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lines: list[bytes] = []
        self._waiting = 0
        self._last = ""
        self.entries = 0
        self.bytes = 0

    def add(self, entry: Header, relative: str) -> None:
        line = compact_json.encode(entry)
        self._lines.append(line)
        self._last = relative
        self.entries += 1
        self.bytes += len(line)
        self._waiting += len(line)
        if self._waiting >= FRAME:
            self._flush()

    def end(self, *, more: bool) -> None:
        self._flush()
        self._channel.send({"end": True, "after": self._last if more else None})

    def _flush(self) -> None:
        if self._waiting:
            self._channel.send({}, b"\n".join(self._lines))
            self._lines, self._waiting = [], 0
