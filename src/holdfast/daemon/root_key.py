"""The root key: taken from the configuration, or made once and kept in ``<state_dir>/api_key``.

The state directory is open to passers-by when root owns it, since sandboxes run under other user ids and must reach
their files below it. What is secret in there is therefore a 0600 file; a key that others could have read is refused.
"""

import os
import stat
from pathlib import Path

from holdfast.callers.ring import new_key
from holdfast.daemon.config.config import Config, weak_key
from holdfast.daemon.node import write_once
from holdfast.errors import ConfigError

KEY_FILE = "api_key"


def load_or_create_key(config: Config) -> str:
    """Return the key that callers must present. Makes the state directory and the key file if they are missing.

    Safe to run in two processes at once: both return the same key. Raises ``ConfigError`` with the remedy.
    """
    if config.api_key is not None:
        return config.api_key.get_secret_value()
    path = config.state_dir / KEY_FILE
    try:
        make_state_dir(config.state_dir)
        if not os.path.lexists(path):
            write_once(path, f"{new_key()}\n")
        return _read(path)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"api_key: cannot keep a key in {path}: {reason}; set state_dir or api_key") from error


def make_state_dir(path: Path) -> None:
    """Make the state directory, and what is missing above it. Leaves the mode of an existing one alone."""
    mode = 0o711 if os.geteuid() == 0 else 0o700
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    for directory in reversed(missing):
        try:
            directory.mkdir()
        except FileExistsError:
            continue  # another process was faster
        directory.chmod(mode)  # not by mkdir, which lets the umask take bits away


def _read(path: Path) -> str:
    # One descriptor for look and read, so that what was checked is what is used; no waiting on a FIFO.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), encoding="utf-8", errors="replace") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"api_key: {path} is not a regular file; remove it, and a new key is made")
        if status.st_mode & 0o077:
            mode = f"{stat.S_IMODE(status.st_mode):04o}"
            raise ConfigError(f"api_key: other users can get at {path} (mode {mode}); run: chmod 600 {path}")
        if status.st_uid not in (0, os.geteuid()):
            raise ConfigError(f"api_key: {path} belongs to user {status.st_uid}; remove it, and a new key is made")
        key = file.read(4096).strip()
    if problem := weak_key(key):
        raise ConfigError(f"api_key: the key in {path} {problem}; remove the file, and a new key is made")
    return key
