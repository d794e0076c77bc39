"""``holdfast cp``: a file into a session, or out of one."""

import posixpath
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, find_session, show_json, wants_json

if TYPE_CHECKING:
    from holdfast.sdk import Client

_REMOTE = re.compile(r"([A-Za-z0-9_-]+):(/.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Place:
    """A file here, or in a session if ``session`` is set."""

    session: str | None
    path: str

    @classmethod
    def of(cls, text: str) -> "Place":
        match = _REMOTE.fullmatch(text)
        return cls(match[1], match[2]) if match else cls(None, text)

    def holding(self, name: str) -> "Place":
        """Where a file of that name goes: into the place, if the place is a directory."""
        if self.session is not None:
            return Place(self.session, posixpath.join(self.path, name)) if self.path.endswith("/") else self
        return Place(None, str(Path(self.path) / name)) if Path(self.path).is_dir() else self


@click.command("cp")
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@connection
def command(source: str, target: str) -> None:
    """Copy a file; a place in a session is written ID:/path.

    \b
    holdfast cp notes.txt ID:/tmp/
    holdfast cp ID:/tmp/result.csv .
    """
    src, dst = Place.of(source), Place.of(target)
    if src.session is None and dst.session is None:
        raise click.UsageError("one of the two must be in a session, written ID:/path")
    dst = dst.holding(posixpath.basename(src.path))
    size = ask(lambda client: copy(client, src, dst))
    if wants_json():
        show_json({"source": source, "target": dst.path, "bytes": size})


async def copy(client: "Client", src: Place, dst: Place) -> int:
    mode: int | None = None
    if src.session is None:
        data, mode = _load(Path(src.path))
    else:
        data = await (await find_session(client, src.session)).read(src.path)
    if dst.session is None:
        Path(dst.path).write_bytes(data)
    else:
        await (await find_session(client, dst.session)).write(dst.path, data, mode=mode)
    return len(data)


def _load(path: Path) -> tuple[bytes, int]:
    if path.is_dir():
        raise click.UsageError(f"{path} is a directory; pack it with tar, copy that, and unpack it inside")
    return path.read_bytes(), stat.S_IMODE(path.stat().st_mode) & 0o777
