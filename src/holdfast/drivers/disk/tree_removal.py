"""Removes a directory that a sandbox has filled, even if it is unreadable, read-only or absurdly deep."""

import os
import secrets
import stat
from pathlib import Path


def remove_tree(top: Path) -> None:
    """Remove ``top`` with all that is in it, if it exists. Raises OSError if something cannot be removed.

    A file or a link of that name is removed, too. Subdirectories are moved up to the top before they are emptied, so
    no path grows long and nothing recurses. Links are never followed. Nothing may write there any more.
    """
    try:
        if not stat.S_ISDIR(top.lstat().st_mode):
            top.unlink()
            return
        top.chmod(0o700)
        while directories := _empty(top, top):
            for directory in directories:
                _empty(directory, top)
                directory.rmdir()
        top.rmdir()
    except FileNotFoundError:
        if os.path.lexists(top):
            raise


def _empty(directory: Path, top: Path) -> list[Path]:
    """Unlink the files of a directory and put its subdirectories right below ``top``. Returns where these are now."""
    moved: list[Path] = []
    with os.scandir(directory) as entries:
        for entry in list(entries):
            path = Path(entry.path)
            if not entry.is_dir(follow_symlinks=False):
                path.unlink()
                continue
            path.chmod(0o700)  # a directory that moves must be writable itself
            if directory != top:
                path = path.rename(top / secrets.token_hex(8))
            moved.append(path)
    return moved
