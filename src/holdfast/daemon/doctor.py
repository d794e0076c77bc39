"""``holdfast doctor``: everything that the daemon needs from this machine, one check per line."""

import os
import socket
import sys
from collections.abc import Sequence

from holdfast.daemon.config import Config
from holdfast.daemon.node import StateLock
from holdfast.daemon.wiring import make_driver
from holdfast.drivers.base import Check
from holdfast.errors import ConfigError, HoldfastError
from holdfast.store import Store


async def run_checks(config: Config) -> Sequence[Check]:
    """Looks; starts and changes nothing but the state directory and, if it is there, the database's schema."""
    return [_python(), _state_dir(config), _port(config), await _database(config), *await make_driver(config).check()]


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", sys.version_info >= (3, 11), version, "Install Python 3.11 or later")


def _state_dir(config: Config) -> Check:
    """It, or the nearest directory above it, must be writable."""
    path = config.state_dir
    while not path.exists():
        path = path.parent
    if os.access(path, os.W_OK | os.X_OK):
        return Check("state directory", True, str(config.state_dir))
    return Check("state directory", False, f"cannot write to {path}", "Set state_dir to a directory of yours")


def _port(config: Config) -> Check:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.host, config.port))
        except OSError as error:
            if _daemon_runs(config):
                return Check("listen", True, f"{config.listen} is in use by the running daemon")
            return Check("listen", False, f"{config.listen}: {error.strerror}", "Set listen to another port")
    return Check("listen", True, f"{config.listen} is free")


def _daemon_runs(config: Config) -> bool:
    """Whether a daemon of ours holds the state directory."""
    try:
        with StateLock(config.state_dir):
            return False
    except ConfigError:
        return True
    except OSError:
        return False


async def _database(config: Config) -> Check:
    if config.database_url is None:
        return Check("database", True, f"SQLite in {config.state_dir}")
    try:
        store = await Store.open(config.resolved_database_url)
        await store.close()
    except HoldfastError as error:
        return Check("database", False, error.message, "Check database_url")
    return Check("database", True, "reachable")
