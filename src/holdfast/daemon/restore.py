"""``holdfast restore``: a state directory from what ``holdfast backup`` wrote; the daemon that starts does the rest.

Each session's row is put back to ``creating``, from the snapshot that the backup took of it: the daemon makes its
sandbox anew, with its id, files and shells, as it finishes any create that was cut off.
"""

import asyncio
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

from holdfast.daemon.backup import DATABASE, SECRETS, Manifest
from holdfast.daemon.config.config import Config
from holdfast.daemon.restore_checks import check_contents, check_disks
from holdfast.daemon.root_key import make_state_dir
from holdfast.drivers.disk.file_copy import no_room
from holdfast.drivers.disk.tree_copy import copy_tree
from holdfast.errors import ConfigError, Conflict, DiskFull, Unavailable
from holdfast.records.copies import SnapshotRow, SnapshotStatus
from holdfast.records.machine import LIVE, Reason, Status
from holdfast.records.sessions import SessionRow
from holdfast.records.spec import SnapshotKind
from holdfast.store import Store
from holdfast.store.database.engine import is_sqlite, parse_url

HALF = "restoring"
"""Is in the state directory until it is complete; no daemon starts on half of one."""
_HARMLESS = ("lost+found", "holdfast.yaml")
_LEFT_OUT = "it was not in the backup that this host was restored from; destroy it"


async def restore(config: Config, source: Path) -> Manifest:
    """Restore a backup. Raises ``ConfigError`` where there is none, ``Conflict`` where the place is in use."""
    manifest = Manifest.read(source)
    try:
        await asyncio.to_thread(check_contents, source, manifest)
        await asyncio.to_thread(_copy, config, source, manifest)
    except OSError as error:
        if no_room(error):
            raise DiskFull(f"there is no room in {config.state_dir}; make some, empty it, and try again") from error
        raise Unavailable(f"cannot restore to {config.state_dir}: {error}; empty it, and try again") from error
    store = await Store.open(config.resolved_database_url)
    try:
        await _put_back_rows(store, manifest, source)
    finally:
        await store.close()
    await asyncio.to_thread((config.state_dir / HALF).unlink)
    return manifest


def refuse_half(state_dir: Path) -> None:
    """Raise ``ConfigError`` on what a restore has left that did not come to its end."""
    if (state_dir / HALF).exists():
        raise ConfigError(f"{state_dir} is half restored; empty it, and run `holdfast restore` again")


def _copy(config: Config, source: Path, manifest: Manifest) -> None:
    state = config.state_dir
    parsed = parse_url(config.resolved_database_url)
    database = Path(parsed.database or "") if is_sqlite(parsed) else None
    _check_place(state, database, manifest, config.driver)
    make_state_dir(state)
    (state / HALF).touch(0o600)
    for name in SECRETS:
        if (source / name).exists():
            _copy_private(source / name, state / name)
    snapshots = state / "snapshots" if config.snapshot_dir is None else config.snapshot_dir / manifest.node
    snapshots.mkdir(mode=0o700, parents=True, exist_ok=True)
    for place in ("sessions", "snapshots"):
        for path in (source / place).iterdir():
            _copy_one(path, snapshots / path.name)
    _copy_one(source / "images", state / "images")
    _copy_one(source / "thread-files", config.thread_files_dir or state / "thread-files")
    _copy_workspaces(source, state, manifest)
    check_disks([snapshots, state / "workspaces"])
    if database is not None and (source / DATABASE).exists():
        _copy_private(source / DATABASE, database)


def _check_place(state: Path, database: Path | None, manifest: Manifest, driver: str) -> None:
    there = [path.name for path in state.iterdir() if path.name not in _HARMLESS] if state.exists() else []
    if there:
        raise Conflict(f"{state} is not empty ({there[0]}, …); restore to an empty state directory")
    if database is not None and database.exists():
        raise Conflict(f"there is a database in {database} already; move it away first")
    if (manifest.database == "sqlite") != (database is not None):
        raise ConfigError(f"the backup's database is {manifest.database}; set database_url to one of that kind")
    if manifest.driver != driver:
        raise ConfigError(f"the backup is of driver {manifest.driver}; set driver to that")


def _copy_private(source: Path, target: Path) -> None:
    """Copy a file so that nobody else can read it at any moment: others can enter the state directory."""
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with source.open("rb") as read, os.fdopen(fd, "wb") as write:
        os.fchmod(fd, 0o600)
        shutil.copyfileobj(read, write)


def _copy_one(source: Path, target: Path) -> None:
    if source.is_dir():
        copy_tree(source, target)
    elif source.exists():
        shutil.copy2(source, target)


def _copy_workspaces(source: Path, state: Path, manifest: Manifest) -> None:
    for path in (source / "workspaces").iterdir():
        target = state / "workspaces" / path.name
        target.parent.mkdir(exist_ok=True)
        target.parent.chmod(0o711)  # sandboxes run under other ids and must be able to pass through
        copy_tree(path, target)
        holder = (path / "holder").read_text() if (path / "holder").exists() else ""
        snapshot = manifest.sessions.get(holder)
        if snapshot is not None:
            for part in (source / "sessions" / snapshot / "workspace").iterdir():
                _copy_one(part, target / part.name)
        (target / "holder").write_text("")


async def _put_back_rows(store: Store, manifest: Manifest, source: Path) -> None:
    for row in await store.sessions.by_status(LIVE, node=manifest.node):
        snapshot = manifest.sessions.get(row.id)
        if snapshot is not None and (source / "sessions" / snapshot).is_dir():
            await store.snapshots.insert(_snapshot(row, snapshot), max_owned=None)
            spec = replace(row.spec, fork_of=None, renewed=())
            await store.sessions.start_over(row.id, snapshot_id=snapshot, spec=spec, now=time.time())
        elif row.status not in (Status.CREATING, Status.DESTROYING):
            await store.sessions.change(
                row.id,
                statuses=LIVE,
                generation=None,
                now=time.time(),
                values={"status": Status.ERROR, "reason": Reason.LOST, "error": _LEFT_OUT, "paused_as": None},
            )


def _snapshot(row: SessionRow, id: str) -> SnapshotRow:
    """Make the row of a snapshot that stays, for the case that the session cannot be made from it at once."""
    return SnapshotRow(
        id=id,
        name=f"restored-{row.id}",
        owner=row.owner,
        status=SnapshotStatus.READY,
        kind=SnapshotKind.FILES,
        session_id=row.id,
        image=row.image,
        node=row.node,
        driver=row.driver,
        spec=row.spec,
        created_at=time.time(),
    )
