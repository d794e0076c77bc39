"""``holdfast backup``: everything that a daemon would need to go on elsewhere, in a new directory; nobody is stopped.

::

    <to>/backup.json                what it is: format, version, node, and which snapshot holds which session
         holdfast.db                the rows (SQLite); with Postgres there is none, and ``pg_dump`` is the way
         sessions/snp_…, .shells    each session at one moment, as a snapshot that exists only here
         snapshots/, workspaces/    what outlives sessions
         thread-files/, images/     files of threads; images that were built or imported
         api_key, link_key, node_id secrets and name of the node

Sessions come first, then the rows, then the files that rows speak of: no row in it speaks of a file that is not there.
It is ``<to>.new`` until it is complete.
"""

import asyncio
import json
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from holdfast import __version__
from holdfast.daemon import node
from holdfast.daemon.config.config import Config
from holdfast.drivers.disk.file_copy import no_room
from holdfast.drivers.disk.tree_copy import copy_tree
from holdfast.drivers.disk.tree_removal import remove_tree
from holdfast.errors import (
    ConfigError,
    Conflict,
    DiskFull,
    NotFound,
    SessionGone,
    SnapshotNotFound,
    Unavailable,
    WrongState,
)
from holdfast.sdk import Client
from holdfast.store.database.engine import is_sqlite, parse_url

FORMAT = 1
SECRETS = ("api_key", "link_key", "node_id")
DATABASE = "holdfast.db"
_PREFIX = "backup-"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
Tell = Callable[[str], None]


@dataclass(slots=True)
class Manifest:
    """What a backup holds: ``sessions`` has the snapshot of each session, ``left_out`` why others have none."""

    node: str
    driver: str
    database: str
    created_at: float
    version: str = __version__
    format: int = FORMAT
    sessions: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        (directory / "backup.json").write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, directory: Path) -> "Manifest":
        """Read it from a backup. Raises ``ConfigError`` where no complete backup is."""
        try:
            content = json.loads((directory / "backup.json").read_text())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{directory} holds no complete backup: {error}") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            version = content.get("version") if isinstance(content, dict) else None
            raise ConfigError(f"{directory} was made by another version ({version}); use that one")
        try:
            manifest = cls(**content)
            manifest._check()
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{directory}/backup.json is damaged: {error}") from None
        return manifest

    def _check(self) -> None:
        """Raise ``ValueError`` where a name could lead elsewhere: names become names of files."""
        if not isinstance(self.sessions, dict):
            raise TypeError("sessions is no object")
        names = [self.node, *self.sessions, *self.sessions.values()]
        if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
            raise ValueError("a node, session or snapshot has a name that makes no sense")


async def make(config: Config, client: Client, to: Path, tell: Tell) -> Manifest:
    """Make a backup. Raises ``Conflict`` where something is there, ``DiskFull``, and what the daemon answers."""
    backup = Backup(config, client, to, tell)
    try:
        return await backup.make()
    except BaseException as error:
        await asyncio.to_thread(remove_tree, backup.scratch)
        if not isinstance(error, OSError):
            raise
        if no_room(error):
            raise DiskFull(f"there is no room for the backup in {to.parent}; choose another place") from error
        raise Unavailable(f"the backup cannot be written: {error}") from error


class Backup:
    """A backup that is being made."""

    def __init__(self, config: Config, client: Client, to: Path, tell: Tell) -> None:
        self._config = config
        self._state = config.state_dir
        self._client = client
        self._to = to
        self._tell = tell
        self.scratch = to.with_name(f"{to.name}.new")
        parsed = parse_url(config.resolved_database_url)
        self._sqlite = Path(parsed.database or "") if is_sqlite(parsed) else None
        kind = "postgres" if self._sqlite is None else "sqlite"
        self._manifest = Manifest(node.node_id(self._state), config.driver, kind, time.time())

    @property
    def _snapshots(self) -> Path:
        shared = self._config.snapshot_dir
        return self._state / "snapshots" if shared is None else shared / self._manifest.node

    async def make(self) -> Manifest:
        await self._client.keys.list()  # for admins only: another key would miss the sessions of others
        await self._check_daemon()
        await asyncio.to_thread(self._begin)
        for session in await self._client.list_sessions():
            await self._keep_session(session.id)
        if self._sqlite is not None:
            await asyncio.to_thread(copy_database, self._sqlite, self.scratch / DATABASE)
        for work in (self._copy_snapshots, self._copy_workspaces, self._copy_files, self._finish):
            await asyncio.to_thread(work)
        return self._manifest

    async def _check_daemon(self) -> None:
        """Refuse the sessions of one daemon with the files of another: together they look like a backup."""
        asked = await self._client.node()
        if asked != self._manifest.node:
            raise Conflict(
                f"the daemon at {self._client.url} is {asked or 'an older one, without a name'}, and {self._state} "
                f"is of {self._manifest.node}; give --url, or --config, so that both are of one daemon"
            )

    def _begin(self) -> None:
        if os.path.lexists(self._to):
            raise Conflict(f"{self._to} exists already; name a directory that does not")
        remove_tree(self.scratch)
        self.scratch.mkdir(mode=0o700, parents=True)
        for name in ("sessions", "snapshots", "workspaces"):
            (self.scratch / name).mkdir(mode=0o700)

    async def _keep_session(self, session_id: str) -> None:
        """Copy a session by a snapshot that is removed when it was copied: there is never more than one of them."""
        name = _PREFIX + session_id
        with suppress(SnapshotNotFound):
            await self._client.snapshots.remove(name)  # of a backup that was killed
        try:
            taken = await (await self._client.get_session(session_id)).snapshot(name)
        except (WrongState, SessionGone, NotFound) as error:
            self._manifest.left_out[session_id] = error.message
            self._tell(f"{session_id}: left out: {error.message}")
            return
        try:
            await asyncio.to_thread(self._copy_snapshot, taken.id, self.scratch / "sessions")
        finally:
            with suppress(SnapshotNotFound):
                await self._client.snapshots.remove(taken.id)
        self._manifest.sessions[session_id] = taken.id
        self._tell(f"{session_id}: kept")

    def _copy_snapshot(self, id: str, to: Path) -> None:
        copy_tree(self._snapshots / id, to / id)
        if (self._snapshots / f"{id}.shells").exists():
            shutil.copy2(self._snapshots / f"{id}.shells", to)

    def _copy_snapshots(self) -> None:
        """Copy complete snapshots. One that is removed meanwhile has no row in the copy, or is removed there later."""
        for path in sorted(self._snapshots.glob("snp_*")):
            if (path / "snapshot.json").exists():
                try:
                    self._copy_snapshot(path.name, self.scratch / "snapshots")
                except OSError:
                    if path.exists():
                        raise
                    remove_tree(self.scratch / "snapshots" / path.name)

    def _copy_workspaces(self) -> None:
        """Copy workspaces. The files of one that a session has are in that session's snapshot, as of one moment."""
        held = {path.parent.name for path in (self._state / "workspaces").glob("wsp_*/holder") if path.read_text()}
        for path in sorted((self._state / "workspaces").glob("wsp_*")):
            target = self.scratch / "workspaces" / path.name
            if path.name not in held:
                copy_tree(path, target)
                continue
            target.mkdir(mode=0o700)
            for name in ("workspace.json", "holder"):
                shutil.copy2(path / name, target)

    def _copy_files(self) -> None:
        places = {
            "thread-files": self._config.thread_files_dir or self._state / "thread-files",
            "images": self._state / "images",
        }
        for name, place in places.items():
            if place.is_dir():
                copy_tree(place, self.scratch / name)
        for name in SECRETS:
            if (self._state / name).exists():
                shutil.copy2(self._state / name, self.scratch)

    def _finish(self) -> None:
        self._manifest.write(self.scratch)
        os.sync()
        self.scratch.rename(self._to)


def copy_database(source: Path, target: Path) -> None:
    """Copy all rows as of one moment, while others write, by SQLite's own backup."""
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with closing(sqlite3.connect(source)) as rows, closing(sqlite3.connect(target)) as copy:
            rows.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise OSError(f"the database cannot be copied: {error}") from error
