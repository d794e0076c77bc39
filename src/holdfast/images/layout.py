"""What every image must have, whatever it was made from: mount points, a few files in /etc, and the session's user.

The root is read-only in a sandbox, so whatever something is mounted on must be there already, as itself: a link in
such a place is replaced, because a mount would follow it.
"""

import time

from holdfast.errors import BadInput
from holdfast.images.unpack.tree import Meta, Tree, split

USER = "sandbox"
USER_ID = 1000
HOME = "/workspace"
PATH = f"{HOME}/.local/bin:/opt/holdfast/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Of every session. What pip installs for the user comes first; the second has words for what cannot work."""
HOSTS = b"127.0.0.1\tlocalhost\n::1\tlocalhost\n"

# path, mode, and whether the mode and owner hold also for a directory that the image brings
_DIRECTORIES = (
    ("proc", 0o555, False),
    ("sys", 0o555, False),
    ("dev", 0o755, False),
    ("tmp", 0o1777, True),
    ("run", 0o755, False),
    (".holdfast", 0o755, True),
    ("etc", 0o755, False),
    ("var", 0o755, False),
    ("var/tmp", 0o1777, True),
    ("home", 0o755, False),
    ("root", 0o700, False),
    ("mnt", 0o755, False),
)
_FILES = (("etc/hostname", USER.encode() + b"\n"), ("etc/hosts", HOSTS), ("etc/resolv.conf", b""))
_MAX_ACCOUNTS = 1 << 20


def prepare(tree: Tree) -> None:
    """Complete a tree. Safe on hostile ones: nothing is followed, and the tree's own directories are kept."""
    now = time.time()
    # from a directory that only its owner could enter the session's user would see nothing at all
    tree.directory((), Meta(0o755, mtime=now))
    for path, mode, ours in _DIRECTORIES:
        parts = split(path)
        if ours or tree.kind(parts) != "dir":
            tree.directory(parts, Meta(mode, mtime=now))
    tree.directory(split(HOME), Meta(0o755, USER_ID, USER_ID, now))
    for path, content in _FILES:
        # `docker export` leaves these empty, and an empty hosts file knows no localhost
        if not tree.read(split(path), 1) and not (content == b"" and tree.kind(split(path)) == "file"):
            tree.content(split(path), Meta(0o644, mtime=now), content)
    _account(
        tree, "etc/passwd", f"{USER}:x:{USER_ID}:{USER_ID}:{USER}:{HOME}:{shell(tree)}", "root:x:0:0:root:/root:/bin/sh"
    )
    _account(tree, "etc/group", f"{USER}:x:{USER_ID}:", "root:x:0:")
    tree.finish()


def shell(tree: Tree) -> str:
    """Return the image's best shell; ``/bin`` is often a link to ``/usr/bin``."""
    places = ("bin/bash", "usr/bin/bash") if tree.kind(("bin",)) == "symlink" else ("bin/bash",)
    return "/bin/bash" if any(tree.kind(split(place)) for place in places) else "/bin/sh"


def _account(tree: Tree, path: str, line: str, root: str) -> None:
    """Add the session's user or group, unless its number or its name is taken: then the image knows better."""
    text = tree.read(split(path), _MAX_ACCOUNTS + 1)
    if text is not None and len(text) > _MAX_ACCOUNTS:
        raise BadInput(f"the image's {path} is larger than {_MAX_ACCOUNTS >> 10} KB; that cannot be right")
    lines = (text or root.encode()).splitlines()
    known = [fields for fields in (entry.split(b":") for entry in lines) if len(fields) > 2]
    if any(fields[0] == USER.encode() or fields[2] == str(USER_ID).encode() for fields in known):
        return
    content = b"\n".join([*lines, line.encode(), b""])
    tree.content(split(path), Meta(0o644, mtime=time.time()), content)
