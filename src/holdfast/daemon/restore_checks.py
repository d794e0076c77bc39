"""What a backup must be before anything of it is used: it may have been damaged, or made to do harm.

Links, devices and pipes in places of ours would lead a restore, or the daemon after it, to other files of this host:
a disk that is a link to the host's own would be mounted in a sandbox. Within the folders that sandboxes and images have
filled there may be anything; that is shown to sandboxes alone.
"""

import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.daemon.backup import DATABASE, SECRETS, Manifest
from holdfast.errors import ConfigError

_SECONDS = 600.0
_FILES = ("backup.json", DATABASE, *SECRETS)
_FOLDERS = ("sessions", "snapshots", "workspaces")
_FILLED = "disk"
"""The folder of a sandbox's files, where disks are plain directories."""
_UNCORRECTED = 4
"""Of the bits of e2fsck's status: this one and those above it say that something is wrong still."""


def check_contents(source: Path, manifest: Manifest) -> None:
    """Raise ``ConfigError`` where something in a backup is not what it should be. Blocks."""
    for name in _FILES:
        _check(source / name, is_folder=False)
    node = source / "node_id"
    if node.exists() and node.read_text(errors="replace").strip() != manifest.node:
        raise ConfigError(f"{source} was put together from two backups: node_id and backup.json name different nodes")
    for name in (*_FOLDERS, "images", "thread-files"):
        _check(source / name, is_folder=True)
    for name in _FOLDERS:
        if not (source / name).is_dir():
            raise ConfigError(f"{source} is not complete: it has no folder {name}")
    for path, found in _entries([source / name for name in (*_FOLDERS, "thread-files")]):
        if not (stat.S_ISREG(found) or stat.S_ISDIR(found)):
            raise ConfigError(f"{path} in the backup is no file and no folder, but leads elsewhere; do not trust it")


def _check(path: Path, *, is_folder: bool) -> None:
    try:
        found = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISDIR(found) if is_folder else stat.S_ISREG(found)):
        raise ConfigError(f"{path} in the backup is no {'folder' if is_folder else 'file'}; do not trust it")


def _entries(folders: Sequence[Path]) -> Iterator[tuple[str, int]]:
    """Yield all that the daemon itself has made in these folders, with its mode."""
    waiting = [str(folder) for folder in folders if folder.is_dir()]
    while waiting:
        for entry in os.scandir(waiting.pop()):
            found = entry.stat(follow_symlinks=False).st_mode
            yield entry.path, found
            if stat.S_ISDIR(found) and entry.name != _FILLED:
                waiting.append(entry.path)


def check_disks(places: Sequence[Path]) -> None:
    """Have file systems checked, and mended, before the kernel sees them. Raises ``ConfigError``. Blocks."""
    for disk, _mode in _entries(places):
        if disk.endswith("/disk.img"):
            done = subprocess.run(
                ["e2fsck", "-f", "-p", disk],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_SECONDS,
                check=False,
            )
            if done.returncode >= _UNCORRECTED:
                said = done.stdout.decode(errors="replace").strip().splitlines() or ["nothing"]
                raise ConfigError(f"the disk {disk} of the backup is damaged; e2fsck says: {said[-1][:300]}")
