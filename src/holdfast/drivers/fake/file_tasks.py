"""Work on the files of a fake runner: the tasks of a real one that whole files need, over the same stream.

A file is an entry of a dictionary. Folders are there when something is in them, or when they were made.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping

from holdfast.errors import FileMissing, HoldfastError, ProtocolError
from holdfast.link.streams import read_frame
from holdfast.protocol import frames


class FakeFileTasks:
    """Works on ``files``; ``keep`` puts a file there, as far as there is room."""

    def __init__(self, files: Mapping[str, bytes], keep: Callable[[str, bytes], None]) -> None:
        self._files = files
        self._keep = keep
        self._folders: set[str] = set()
        self._changed: dict[str, tuple[bytes, float]] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wish, _body = await read_frame(reader)
        try:
            await self._do(wish, reader, writer)
        except HoldfastError as error:
            writer.write(frames.encode({"error": {"code": error.code, "message": error.message}}))
        await writer.drain()
        writer.write_eof()
        await reader.read()  # until the host has all of it

    async def _do(self, wish: frames.Header, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = str(wish.get("path"))
        match wish.get("task"):
            case "get":
                content = self._content(path)
                writer.write(frames.encode({"entry": self._entry(path)}))
                part, _ = await read_frame(reader)
                start, count = part.get("start"), part.get("count")
                assert isinstance(start, int) and isinstance(count, int)
                writer.write(content[start : start + count])
                return
            case "put":
                content = b""
                while not (frame := await read_frame(reader))[0].get("end"):
                    content += bytes(frame[1])
                self._keep(path, content)
            case "mkdir":
                self._folders.add(path)
            case "list":
                self._list(path, wish, writer)
                return
            case task if task != "stat":
                raise ProtocolError(f"this runner does not know the task {task!r}")
        writer.write(frames.encode({"entry": self._entry(path)}))

    def _list(self, top: str, call: frames.Header, writer: asyncio.StreamWriter) -> None:
        below = sorted(path for path in self._files if path.startswith(f"{top}/"))
        if not below and top not in self._folders:
            raise FileMissing(f"{top}: No such file or directory")
        after, limit = call.get("after"), call.get("limit")
        rest = [path for path in below if after is None or path > f"{top}/{after}"]
        page = rest[:limit] if isinstance(limit, int) else rest
        if page:
            writer.write(frames.encode({}, b"\n".join(json.dumps(self._entry(path)).encode() for path in page)))
        more = page[-1].removeprefix(f"{top}/") if len(page) < len(rest) else None
        writer.write(frames.encode({"end": True, "after": more}))

    def _content(self, path: str) -> bytes:
        if path not in self._files:
            raise FileMissing(f"{path}: No such file or directory")
        return self._files[path]

    def _entry(self, path: str) -> frames.Header:
        content = self._files.get(path, b"")
        if path not in self._files and path not in self._folders:
            raise FileMissing(f"{path}: No such file or directory")
        seen = self._changed.get(path)
        if seen is None or seen[0] != content:
            seen = self._changed[path] = (content, time.time())
        return {
            "path": path,
            "kind": "file" if path in self._files else "directory",
            "size": len(content),
            "mode": 0o644,
            "uid": 0,
            "gid": 0,
            "mtime_ns": int(seen[1] * 1e9),
            "inode": 1,
        }
