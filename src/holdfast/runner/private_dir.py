"""Repairs the runner's private directory after a command has damaged it.

The directory belongs to the user that commands run as, so they can fill it, lock it or remove it. That must not end the
session: the directory is put in order when the damage is noticed.
"""

from __future__ import annotations

import os


def repair(root: str, keep: set[str]) -> None:
    """Make ``root`` accessible and remove everything in it but ``keep``; directories in ``keep`` are repaired, too."""
    try:
        os.chmod(root, 0o700)
        names = os.listdir(root)
    except OSError:
        return
    for name in names:
        path = f"{root}/{name}"
        if path in keep:
            if os.path.isdir(path) and not os.path.islink(path):
                repair(path, keep)
        else:
            _remove(path)


def _remove(path: str) -> None:
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            repair(path, set())
            os.rmdir(path)
        else:
            os.unlink(path)
    except OSError:
        return  # whoever wants to write there next will say what is wrong
