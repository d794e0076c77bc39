"""/v1/sessions/{id}/fs: what files there are, changing that, and being told of changes."""

from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from holdfast.api.files.models import (
    ChangeMode,
    Copy,
    EntryOut,
    EntryPage,
    MakeFolder,
    Move,
    Remove,
    Removed,
    ascii_json,
    change_json,
    entry_json,
    json_reply,
    page_reply,
)
from holdfast.api.files.paths import QueryPath, QueryPattern, from_cursor
from holdfast.api.wire.common import SessionId, reply
from holdfast.api.wire.routes import IN_SESSION, READ, SESSION, USE, Routes
from holdfast.api.wire.sse import EventStream, ServerEvent
from holdfast.sessions.use.file_types import EntryKind, Search
from holdfast.sessions.use.files import SessionFiles

DEFAULT_PAGE = 1000
MAX_PAGE = 5000

_FAILURES = (403, 404, 409, 410, 422, 502, 503)
_WRITING = (403, 404, 409, 410, 413, 422, 502, 503)
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Changes as they happen", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Cursor = Annotated[str | None, Query(max_length=16_384, description="next_cursor of the page before")]


def router(files: SessionFiles) -> Routes:
    routes = Routes("files")
    base = f"{SESSION}/fs"

    @routes.get(f"{base}/stat", "Look at a path", scope=READ, returns=EntryOut, fails=_FAILURES)
    async def stat_path(
        session_id: SessionId,
        path: QueryPath,
        follow: Annotated[bool, Query(description="Look at what a link points to")] = False,
    ) -> Response:
        return json_reply(entry_json(await files.stat(session_id, path, follow=follow)))

    @routes.get(f"{base}/list", "List a folder", scope=READ, returns=EntryPage, fails=_FAILURES)
    async def list_folder(
        session_id: SessionId,
        path: QueryPath,
        recursive: Annotated[
            bool, Query(description="Also what is in the folders below; links are not followed")
        ] = False,
        hidden: Annotated[bool, Query(description="Also names that begin with a dot")] = True,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> Response:
        """Sorted by path. A page may be shorter than ``limit``: only ``next_cursor`` tells whether there are more."""
        search = Search(path, recursive=recursive, hidden=hidden, limit=limit, after=from_cursor(cursor))
        return await page_reply(*await files.list(session_id, search))

    @routes.get(f"{base}/find", "Find by pattern", scope=READ, returns=EntryPage, fails=_FAILURES)
    async def find_files(
        session_id: SessionId,
        path: QueryPath,
        pattern: QueryPattern,
        kind: Annotated[EntryKind | None, Query()] = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> Response:
        """``*``, ``?`` and ``[…]`` match within a name, ``**`` any number of folders; paged as the list is."""
        after = from_cursor(cursor)
        search = Search(path, recursive=True, pattern=pattern, kind=kind, limit=limit, after=after)
        return await page_reply(*await files.list(session_id, search))

    @routes.post(
        f"{base}/mkdir",
        "Make a folder",
        scope=USE,
        returns=EntryOut,
        fails=_WRITING,
    )
    async def make_folder(session_id: SessionId, body: MakeFolder) -> Response:
        made = await files.mkdir(session_id, body.path, parents=body.parents, mode=body.bits)
        return json_reply(entry_json(made))

    @routes.post(
        f"{base}/move",
        "Move or rename",
        scope=USE,
        returns=EntryOut,
        fails=_WRITING,
    )
    async def move_path(session_id: SessionId, body: Move) -> Response:
        """In one step within a file system. Makes missing parent directories of the target."""
        moved = await files.move(session_id, body.source, body.target, overwrite=body.overwrite)
        return json_reply(entry_json(moved))

    @routes.post(
        f"{base}/copy",
        "Copy",
        scope=USE,
        returns=EntryOut,
        fails=_WRITING,
    )
    async def copy_path(session_id: SessionId, body: Copy) -> Response:
        """Keeps modes; links stay links. The target appears when it is whole."""
        copied = await files.copy(
            session_id, body.source, body.target, recursive=body.recursive, overwrite=body.overwrite
        )
        return json_reply(entry_json(copied))

    @routes.post(
        f"{base}/remove",
        "Remove",
        scope=USE,
        returns=Removed,
        fails=_WRITING,
    )
    async def remove_path(session_id: SessionId, body: Remove) -> Response:
        """Never follows a link. Mount points and the session's home stay; remove what is in them."""
        await files.remove(session_id, body.path, recursive=body.recursive)
        return reply(Removed())

    @routes.post(
        f"{base}/chmod",
        "Change permission bits",
        scope=USE,
        returns=EntryOut,
        fails=_WRITING,
    )
    async def change_mode(session_id: SessionId, body: ChangeMode) -> Response:
        return json_reply(entry_json(await files.chmod(session_id, body.path, body.bits, recursive=body.recursive)))

    @routes.get(
        f"{base}/watch",
        "Watch for changes",
        scope=READ,
        fails=(*IN_SESSION, 403, 429),
        responses=_EVENTS,
    )
    async def watch_folder(
        session_id: SessionId,
        path: QueryPath,
        recursive: Annotated[bool, Query(description="Also the folders below, and those that will be")] = False,
    ) -> Response:
        """Server-sent events: ``ready``, then ``created``, ``modified``, ``deleted``, ``moved``; ``overflow`` when more
        happened than could be told. Ends when the path itself is gone."""
        return await EventStream.begin(_events(files, session_id, path, recursive))

    return routes


async def _events(
    files: SessionFiles, session_id: str, path: str, recursive: bool
) -> AsyncGenerator[ServerEvent, None]:
    changes = files.watch(session_id, path, recursive=recursive)
    try:
        async for change in changes:
            if change is None:
                yield ServerEvent("ready", ascii_json({"path": path}))
            else:
                yield ServerEvent(change.kind, ascii_json(change_json(change)))
    finally:
        await changes.aclose()
