"""Makes tars for tests: each member is a line of data."""

import io
import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = os.geteuid() == 0
ID_BASE = 1_000_000_000 if ROOT else None


REQUIRED = ("proc", "sys", "dev", "tmp", "run", "workspace", ".holdfast", "etc", "var/tmp", "home", "root", "mnt")


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a tar. ``kind`` is tarfile's type byte."""

    name: str
    kind: bytes = tarfile.REGTYPE
    data: bytes = b""
    link: str = ""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    mtime: float = 1_600_000_000
    pax: dict[str, str] = field(default_factory=dict)


def folder(name: str, mode: int = 0o755, uid: int = 0) -> Member:
    return Member(name, tarfile.DIRTYPE, mode=mode, uid=uid)


def symlink(name: str, target: str) -> Member:
    return Member(name, tarfile.SYMTYPE, link=target)


def hardlink(name: str, target: str) -> Member:
    return Member(name, tarfile.LNKTYPE, link=target)


ROOT_DIRS: tuple[Member, ...] = (folder("usr"), folder("bin"), Member("bin/sh", data=b"#!", mode=0o755))


def make_tar(path: Path, members: Sequence[Member], mode: str = "w") -> Path:
    """Write a tar; ``mode`` is tarfile's, such as ``w:gz``."""
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]  # any mode
        for member in members:
            info = tarfile.TarInfo(member.name)
            info.type, info.linkname, info.mode = member.kind, member.link, member.mode
            info.uid, info.gid, info.mtime = member.uid, member.gid, member.mtime
            info.size, info.pax_headers = len(member.data), dict(member.pax)
            tar.addfile(info, io.BytesIO(member.data))
    return path
