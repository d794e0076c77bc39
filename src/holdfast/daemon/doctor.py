"""``holdfast doctor``: everything that the daemon needs from this machine, one check per line."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.daemon.config.config import Config
from holdfast.daemon.config.sandboxes import THREADS
from holdfast.daemon.node import StateLock
from holdfast.daemon.server.exposure import ADVICE, bind, exposure
from holdfast.daemon.trial import try_sandbox
from holdfast.daemon.wiring.wiring import make_driver
from holdfast.drivers.base import Check
from holdfast.errors import ConfigError, HoldfastError
from holdfast.store import Store

_POOLED_MB = 11
"""Of a sandbox that has the runner's pages to itself; in company it is about 4."""
_POOLED_AGENT_MB = 110
_NO_MATTER = ("listen", "database")
"""Checks that do not matter for a sandbox."""


async def run_checks(config: Config) -> Sequence[Check]:
    """Look, and try a sandbox. Changes nothing but the state directory and, if it is there, the database's schema."""
    own = [
        _python(),
        _state_dir(config),
        _port(config),
        await _database(config),
        *_exposed(config),
        *_pool(config),
        _builds(),
    ]
    found = [*own, *await make_driver(config).check()]
    needed = [check for check in found if check.fatal and check.name not in _NO_MATTER]
    return [*found, await try_sandbox(config)] if all(check.ok for check in needed) else found


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", sys.version_info >= (3, 11), version, "Install Python 3.11 or later")


def _state_dir(config: Config) -> Check:
    """Check that it, or the nearest directory above it, is writable."""
    path = config.state_dir
    while not path.exists():
        path = path.parent
    if os.access(path, os.W_OK | os.X_OK):
        return Check("state directory", True, str(config.state_dir))
    return Check("state directory", False, f"cannot write to {path}", "Set state_dir to a directory of yours")


def _port(config: Config) -> Check:
    try:
        bind(config).close()
    except OSError as error:
        if _daemon_runs(config):
            return Check("listen", True, f"{config.listen} is in use by the running daemon")
        return Check("listen", False, f"{config.listen}: {error.strerror}", "Set listen to another port")
    return Check("listen", True, f"{config.listen} is free")


def _exposed(config: Config) -> list[Check]:
    """Warn of an address that others reach: it is no fault, but nobody should be surprised by it."""
    seen = exposure(config)
    return [] if seen is None else [Check("exposure", False, seen, ADVICE, fatal=False)]


def _pool(config: Config) -> list[Check]:
    """Say what the sandboxes cost that are kept ready, where there are to be any."""
    count, agents = sum(config.pool.values()), config.pool.get(THREADS, 0)
    if not count:
        return []
    have, need = _available_mb(), (count - agents) * _POOLED_MB + agents * _POOLED_AGENT_MB
    detail = f"{count} sandboxes are kept ready, at up to {_POOLED_MB} MB of memory each"
    if agents:
        detail += f" ({agents} of them with an agent, at some {_POOLED_AGENT_MB} MB)"
    detail += f"; {have} MB are available"
    return [Check("warm pool", need <= have, detail, "Set pool to fewer sandboxes", fatal=False)]


def _builds() -> Check:
    """Look for the programs that make images; sessions do without them."""
    missing = [tool for tool in ("mmdebstrap", "skopeo", "umoci") if shutil.which(tool) is None]
    detail = f"{', '.join(missing)} not installed" if missing else "mmdebstrap, skopeo and umoci are installed"
    install = f"To build images, and to import those of registries: apt-get install {' '.join(missing)}"
    remedy = install if missing else ""
    return Check("image builds", not missing, detail, remedy, fatal=False)


def _available_mb() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("MemAvailable:"))


def _daemon_runs(config: Config) -> bool:
    """Say whether a daemon of ours holds the state directory."""
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
