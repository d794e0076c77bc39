"""What a node keeps for itself in the state directory: its name, the key that link tokens are made from, its lock."""

import fcntl
import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path

from holdfast.errors import ConfigError


def node_id(state_dir: Path) -> str:
    """Return this node's name in the store, which is made once. Sandboxes on this machine belong to it."""
    return _kept(state_dir / "node_id", lambda: f"node_{secrets.token_hex(8)}")


def link_key(state_dir: Path) -> bytes:
    """Return the key that each session's link token is derived from. It never leaves the host."""
    return _kept(state_dir / "link_key", lambda: secrets.token_hex(32)).encode()


def _kept(path: Path, make: Callable[[], str]) -> str:
    """Return the file's content. It is written once, whole, readable by the owner alone."""
    if not path.exists():
        write_once(path, make())
    content = path.read_text().strip()
    if not content:
        raise ConfigError(f"{path} is empty; restore it from a backup, or destroy all sessions and remove it")
    return content


def write_once(path: Path, text: str) -> None:
    """Write a private file beside its place and link it there: complete or absent, and the first one wins."""
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # 0600 from the start
    try:
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
    finally:
        Path(temporary).unlink()
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class StateLock:
    """Lets one daemon use a state directory: two would fight over the same sandboxes."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "daemon.lock"
        self._fd = -1

    def __enter__(self) -> None:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self._fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise ConfigError(
                f"another daemon (pid {holder}) uses {self._path.parent}; stop it or set another state_dir"
            ) from None
        os.ftruncate(self._fd, 0)
        os.write(self._fd, f"{os.getpid()}\n".encode())

    def __exit__(self, *_exc: object) -> None:
        os.close(self._fd)
