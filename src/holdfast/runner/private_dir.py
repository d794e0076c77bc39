"""The runner's private directory, kept usable against whatever a command does to it.

It belongs to the user that commands run as, so they can fill it, lock it or remove it. That must not be the end of the
session: it is put in order again when it is found out.
"""

from __future__ import annotations

import os


def repair(root: str, keep: set[str]) -> None:
    """Open ``root`` again and remove everything in it but ``keep``, which names files and directories to go into."""
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
