"""Files that our own pages load: scripts, styles, and the bundles of other people's JavaScript.

Their addresses have a digest of all of them in it, so browsers may keep them for ever, and a page never mixes the files
of two versions.
"""

import asyncio
import gzip
import hashlib
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

Header = tuple[bytes, bytes]

ASSETS = "/.holdfast/assets/"
_FOLDERS = ("app", "vendor")
_TYPES = {
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".txt": b"text/plain; charset=utf-8",
}


@dataclass(slots=True)
class Asset:
    kind: bytes
    body: bytes
    packed: bytes | None = None
    """As gzip has it, once somebody has asked for that."""


class Assets:
    """All of them, in memory."""

    def __init__(self) -> None:
        root = resources.files("holdfast.gateway.pages")
        self._files = {f"{folder}/{file.name}": _read(file) for folder in _FOLDERS for file in _served(root / folder)}
        whole = hashlib.sha256()
        for name, asset in sorted(self._files.items()):
            whole.update(f"{name}\0{len(asset.body)}\0".encode() + asset.body)
        self.base = f"{ASSETS}{whole.hexdigest()[:16]}/"

    async def find(self, path: str, *, packed: bool) -> tuple[list[Header], bytes] | None:
        """Return the headers and the body of a file; None if there is none of this path, in this version."""
        asset = self._files.get(path.removeprefix(self.base)) if path.startswith(self.base) else None
        if asset is None:
            return None
        body = await _packed(asset) if packed else asset.body
        headers = [
            (b"content-type", asset.kind),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"public, max-age=31536000, immutable"),
            (b"vary", b"accept-encoding"),
            (b"x-content-type-options", b"nosniff"),
            (b"cross-origin-resource-policy", b"same-origin"),
        ]
        if packed:
            headers.append((b"content-encoding", b"gzip"))
        return headers, body


def _served(folder: Traversable) -> list[Traversable]:
    return [file for file in folder.iterdir() if _suffix(file) in _TYPES]


def _suffix(file: Traversable) -> str:
    return "." + file.name.rpartition(".")[2]


def _read(file: Traversable) -> Asset:
    return Asset(_TYPES[_suffix(file)], file.read_bytes())


async def _packed(asset: Asset) -> bytes:
    if asset.packed is None:
        asset.packed = await asyncio.to_thread(gzip.compress, asset.body, 9, mtime=0)
    return asset.packed
