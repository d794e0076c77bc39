"""What a node keeps for itself in the state directory: its name, the key that link tokens are made from, its lock."""

import fcntl
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from holdfast.errors import ConfigError


def node_id(state_dir: Path) -> str:
    """This node's name in the store; made once. Sandboxes on this machine belong to it."""
    return _kept(state_dir / "node_id", lambda: f"node_{secrets.token_hex(8)}")


def link_key(state_dir: Path) -> bytes:
    """From which each session's link token is derived. Never leaves the host."""
    return _kept(state_dir / "link_key", lambda: secrets.token_hex(32)).encode()


def _kept(path: Path, make: Callable[[], str]) -> str:
    """The file's content; written once, whole, readable by the owner alone."""
    if not path.exists():
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        scratch.unlink(missing_ok=True)
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(make())
            file.flush()
            os.fsync(file.fileno())
        scratch.rename(path)
    content = path.read_text().strip()
    if not content:
        raise ConfigError(f"{path} is empty; restore it from a backup, or destroy all sessions and remove it")
    return content


class StateLock:
    """One daemon per state directory: two would fight over the same sandboxes."""

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
