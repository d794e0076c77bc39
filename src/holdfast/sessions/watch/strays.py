"""What has a mark and no row: the database was lost, or is an older one, or another's. It is set aside, not removed.

| what                      | what is done                                                                           |
| ------------------------- | -------------------------------------------------------------------------------------- |
| a sandbox that runs       | frozen, where the driver can; after an hour, or where it cannot, stopped with its files |
| a sandbox that is stopped | left as it is                                                                          |
| a snapshot, a workspace   | left as it is                                                                          |

After ``stray_keep_seconds`` a sandbox or a snapshot is removed; a workspace never is. Until then ``adopt`` makes a row
for it, with its id and its owner. If the right database comes back before that, its rows do so by themselves.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import structlog

from holdfast.drivers.base import SandboxInfo, SandboxState
from holdfast.errors import Conflict, SandboxNotFound, StrayNotFound, WrongState
from holdfast.records.columns import columns
from holdfast.records.copies import SnapshotRow, SnapshotStatus, WorkspaceRow
from holdfast.records.machine import LIVE, Reason, Status
from holdfast.records.sessions import SessionRow
from holdfast.records.spec import SessionSpec, SnapshotKind
from holdfast.sessions.context import Context
from holdfast.sessions.copies.copying import Copying
from holdfast.sessions.life import Life, mark_of
from holdfast.sessions.session import Sessions
from holdfast.sessions.sleep import Sleep
from holdfast.sessions.telling.event_kinds import EventKind
from holdfast.sessions.types import StrayKind, StrayView
from holdfast.sessions.watch.marks import Mark
from holdfast.store import WorkspaceWish

log = structlog.get_logger(__name__)

_KINDS = {"ses": StrayKind.SESSION, "snp": StrayKind.SNAPSHOT, "wsp": StrayKind.WORKSPACE}
_FROZEN_SECONDS = 3600.0
"""How long one that is set aside may hold its memory: long enough to notice a wrong ``database_url``."""
_WHOLE = tuple(status for status in LIVE if status not in (Status.CREATING, Status.DESTROYING))
_SOONER_SECONDS = 1.0
"""Rows are written a moment after what they tell of."""


def mark_of_snapshot(row: SnapshotRow) -> Mark:
    return Mark(row.id, {**columns(row), "spec": row.spec.to_json()}, row.created_at)


def mark_of_workspace(row: WorkspaceRow) -> Mark:
    return Mark(row.id, columns(replace(row, session_id=None)), row.last_used_at)


class Strays:
    """Of one node."""

    def __init__(self, context: Context, sessions: Sessions, life: Life, sleep: Sleep, copying: Copying) -> None:
        self._context = context
        self._clock = context.clock
        self._driver = context.driver
        self._marks = context.marks
        self._store = context.store
        self._sessions = sessions
        self._life = life
        self._sleep = sleep
        self._copies = copying.snapshots
        self._count = 0
        context.metrics.strays.set_function(lambda: self._count)

    # -- marks ---------------------------------------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Before anything is judged by its row: what was used later than an older database knows has not expired.

        A use that is still to come was noted while the clock was wrong. Says so where there are marks, and a database
        that has never heard of this node.
        """
        marks = await self._marks.all()
        rows = await self._store.by_status(LIVE, node=self._context.node)
        later = [
            (row.id, marks[row.id].used_at, marks[row.id].used_at + row.ttl_seconds, row.cwd)
            for row in rows
            if row.id in marks
            and row.last_activity_at + _SOONER_SECONDS < marks[row.id].used_at <= self._clock() + _SOONER_SECONDS
        ]
        if later:
            log.warning("database.older", sessions=len(later), meaning="they were used later than it knows")
            await self._store.touch(later)
        unknown = [id for id in marks if id.startswith("ses_")]
        if unknown and not rows:
            log.warning(
                "database.knows_nothing",
                sessions=len(unknown),
                meaning="the state directory has sessions, and the database none of this host",
                next="see to database_url; what no row knows of is set aside (holdfast strays)",
            )

    async def refresh_marks(self, found: Iterable[SandboxInfo]) -> None:
        """Write those that are missing, forget those of what is gone, and count what is set aside."""
        rows = await self._store.by_status(_WHOLE, node=self._context.node)
        await self._marks.put(*(mark_of(row) for row in rows))
        there = {info.session_id for info in found} | {row.id for row in rows}
        marks = await self._marks.all()
        for id in marks:
            if id.startswith("ses_") and id not in there and await self._row_of(id) is None:
                await self._marks.remove(id)
        self._count = sum(mark.aside_at is not None for mark in marks.values())

    async def _row_of(self, session_id: str) -> SessionRow | None:
        row = await self._sessions.find_row(session_id)
        return None if row is None or row.status == Status.DESTROYED else row

    # -- set aside -----------------------------------------------------------------------------------------------------

    async def keep(self, found: SandboxInfo) -> bool:
        """Of a sandbox without a row: whether it was somebody's. Then it is quiet now, or its time is up."""
        mark = await self._marks.get(found.session_id)
        if mark is None:
            return False
        async with self._sessions.alone(found.session_id):
            if await self._row_of(found.session_id) is None:  # and was not adopted meanwhile
                mark = await self._set_aside(mark)
                if not await self._remove_if_due(mark):
                    await self._quieten(found, mark)
        return True

    async def keep_snapshot(self, id: str) -> bool:
        """The same of a snapshot. ``id`` has files."""
        mark = await self._marks.get(id)
        if mark is None:
            return False
        await self._remove_if_due(await self._set_aside(mark))
        return True

    async def forget_snapshots(self, there: Collection[str]) -> None:
        """The marks of all but those: of what was removed while its mark was written."""
        for id in await self._marks.all():
            if id.startswith("snp_") and id not in there:
                await self._marks.remove(id)

    async def keep_workspaces(self, known: Iterable[str]) -> None:
        """All but ``known``; they are never removed."""
        for id in {id for id in await self._marks.all() if id.startswith("wsp_")} - set(known):
            if (mark := await self._marks.get(id)) is not None:
                await self._set_aside(mark)

    async def _set_aside(self, mark: Mark) -> Mark:
        if mark.aside_at is not None:
            return mark
        mark = replace(mark, aside_at=self._clock())
        await self._marks.put(mark)
        days = self._context.settings.stray_keep_seconds / 86400
        log.warning("stray.set_aside", id=mark.id, days=days, next=f"holdfast adopt {mark.id} brings it back")
        await self._tell(EventKind.STRAY, mark)
        return mark

    async def _tell(self, kind: EventKind, mark: Mark) -> None:
        data = {"status": "stray", "image": mark.row.get("image"), "metadata": mark.row.get("metadata") or {}}
        await self._store.events.record(kind, mark.id, data=data, now=self._clock(), owner=mark.row.get("owner"))

    async def _remove_if_due(self, mark: Mark) -> bool:
        due = (mark.aside_at or 0.0) + self._context.settings.stray_keep_seconds
        if due > self._clock() or self._context.watch.is_doubtful:
            return False
        log.warning("stray.removed", id=mark.id, meaning="nobody has adopted it for stray_keep_days")
        await self._tell(EventKind.STRAY_REMOVED, mark)
        await self._remove(mark.id)
        return True

    async def _remove(self, id: str) -> None:
        """A sandbox or a snapshot that is cut off here has no mark any more, and goes at once."""
        if id.startswith("wsp_"):
            await self._driver.remove_workspace(self._context.kept.workspace_dir / id)
        await self._marks.remove(id)
        if id.startswith("snp_"):
            await self._copies.forget(id)
        elif id.startswith("ses_"):
            await self._life.remove_stray(id)

    async def _quieten(self, found: SandboxInfo, mark: Mark) -> None:
        """A driver that can neither freeze nor stop lets it run."""
        able, late = self._driver.capabilities, self._clock() - (mark.aside_at or 0.0) >= _FROZEN_SECONDS
        runs, frozen = found.state is SandboxState.RUNNING, found.state is SandboxState.PAUSED
        if runs and able.pause and not late:
            await self._driver.pause(found.handle)
        elif able.stop and (runs or (frozen and late)):
            await self._driver.stop(found.handle)

    async def layouts(self) -> Sequence[str]:
        """Return the trees that sandboxes stand on that are set aside: not to be removed."""
        specs = [mark.row.get("spec") for mark in (await self._marks.all()).values() if mark.id.startswith("ses_")]
        return [SessionSpec.from_json(spec).layout or "" for spec in specs if isinstance(spec, str)]

    # -- what an admin does with them ----------------------------------------------------------------------------------

    async def list(self) -> Sequence[StrayView]:
        """Those set aside last come first."""
        marks = [mark for mark in (await self._marks.all()).values() if mark.aside_at is not None]
        return [self._view(mark) for mark in sorted(marks, key=lambda mark: mark.aside_at or 0.0, reverse=True)]

    def _view(self, mark: Mark) -> StrayView:
        kind, aside_at = _KINDS[mark.id[:3]], mark.aside_at or 0.0
        return StrayView(
            id=mark.id,
            kind=kind,
            owner=mark.row.get("owner"),
            name=mark.row.get("name"),
            last_used_at=mark.used_at,
            aside_at=aside_at,
            remove_at=None if kind is StrayKind.WORKSPACE else aside_at + self._context.settings.stray_keep_seconds,
        )

    async def adopt(self, id: str, /) -> StrayView:
        """Make a row for it, with its id, its owner and its files; a session runs then. Returns what it was."""
        mark = await self._aside(id)
        if not mark.row:
            raise WrongState(f"the mark of {id} is damaged, so nobody knows whose it was; its files are kept")
        work = {"ses": self._adopt_session, "snp": self._adopt_snapshot, "wsp": self._adopt_workspace}[id[:3]]
        await self._context.operations.share(f"adopt:{id}", lambda: work(mark))
        log.info("stray.adopted", id=id)
        return self._view(mark)

    async def remove(self, id: str, /) -> None:
        """With its files, before its time is up."""
        mark = await self._aside(id)
        async with self._sessions.alone(id):
            if await self._row_of(id) is not None:
                raise Conflict(f"{id} was adopted meanwhile; destroy it as a session")
            await self._remove(id)
        log.info("stray.removed", id=id, meaning="an admin has asked for it")
        await self._tell(EventKind.STRAY_REMOVED, mark)

    async def _aside(self, id: str) -> Mark:
        mark = await self._marks.get(id) if id[:4] in ("ses_", "snp_", "wsp_") and id[4:].isalnum() else None
        if mark is None or mark.aside_at is None:
            raise StrayNotFound(f"nothing is set aside as {id}; `holdfast strays` (GET /v1/strays) lists what is")
        return mark

    async def _adopt_session(self, mark: Mark) -> None:
        async with self._sessions.alone(mark.id):
            row, runs = await self._insert_session(mark)
            await self._marks.put(mark_of(row))
        if runs:
            await self._life.adopt(row.id)
        elif self._driver.capabilities.stop:
            await self._sleep.revive(mark.id)

    async def _insert_session(self, mark: Mark) -> tuple[SessionRow, bool]:
        """Active, or in error, from where it can be revived. Says also whether it runs."""
        handle = self._driver.handle_for(mark.id)
        try:
            info = await self._driver.inspect(handle)
        except SandboxNotFound:
            raise StrayNotFound(f"of {mark.id} nothing is left to adopt") from None
        runs = info.state in (SandboxState.RUNNING, SandboxState.PAUSED)
        now = self._clock()
        row = SessionRow(
            **{**mark.row, "snapshot_id": None, "spec": SessionSpec.from_json(mark.row["spec"])},
            status=Status.ACTIVE if runs else Status.ERROR,
            reason=None if runs else Reason.CRASHED,
            node=self._context.node,
            expires_at=now + int(mark.row["ttl_seconds"]),
            last_activity_at=now,
            updated_at=now,
        )
        wish = await self._workspace_of(row)
        if info.state is SandboxState.PAUSED:
            await self._driver.resume(handle)
        stored, _ = await self._store.insert(row, max_live=None, tell=[EventKind.ADOPTED], workspace=wish)
        return stored, runs

    async def _workspace_of(self, row: SessionRow) -> WorkspaceWish | None:
        """Return the named workspace that it had: it comes with it."""
        spec = row.spec
        if row.workspace_id is None or spec.workspace is None:
            return None
        wish = WorkspaceWish(spec.workspace, row.workspace_id, spec.limits.disk_mb, None)
        named = [one for one in await self._context.kept.workspaces.all(owner=row.owner) if one.name == wish.name]
        if named and named[0].id != wish.id:
            raise Conflict(f"{row.owner} has another workspace {wish.name} by now; remove that one first")
        if (mark := await self._marks.get(wish.id)) is not None:
            await self._marks.put(replace(mark, aside_at=None))
        return wish

    async def _adopt_snapshot(self, mark: Mark) -> None:
        if not await self._copies.reaches(mark.id):
            raise StrayNotFound(f"of {mark.id} nothing is left to adopt")
        facts = {**mark.row, "idempotency_key": None, "idempotency_hash": None, "node": self._context.node}
        spec, kind = SessionSpec.from_json(mark.row["spec"]), SnapshotKind(mark.row["kind"])
        row = SnapshotRow(**{**facts, "spec": spec, "kind": kind, "status": SnapshotStatus.READY})
        await self._context.kept.snapshots.insert(row, max_owned=None)
        await self._marks.put(mark_of_snapshot(row))

    async def _adopt_workspace(self, mark: Mark) -> None:
        row = WorkspaceRow(**{**mark.row, "status": "ready", "node": self._context.node})
        await self._context.kept.workspaces.insert(row)
        await self._marks.put(mark_of_workspace(row))
