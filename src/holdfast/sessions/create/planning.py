"""From a wish to a session that has no row yet: every choice is made here, and every refusal."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from holdfast.callers.ceilings import NO_CEILINGS, Ceilings
from holdfast.drivers.base import ImageRoot
from holdfast.errors import BadInput, DriverUnsupported
from holdfast.records.copies import SnapshotRow
from holdfast.records.limits import Limits
from holdfast.records.machine import Status
from holdfast.records.network import NetworkPolicy
from holdfast.records.services import memory_needed
from holdfast.records.sessions import SessionRow
from holdfast.records.spec import SessionSpec
from holdfast.sessions.context import Context
from holdfast.sessions.copies.copying import Copying
from holdfast.sessions.copies.names import check_name
from holdfast.sessions.create import choices
from holdfast.sessions.ids import new_session_id, new_workspace_id
from holdfast.sessions.session import Session
from holdfast.sessions.types import CreateRequest, ForkRequest
from holdfast.store import WorkspaceWish

_HOME = "/workspace"
_ALWAYS = object()
_LATER_FIELDS = {"snapshot": None, "workspace": None, "kept": False, "least_memory_mb": None}
"""With what stands for "not given": left out of the hash then, so that earlier versions of a request have the same."""


class Planning:
    """Plans sessions of this node."""

    def __init__(self, context: Context, copying: Copying) -> None:
        self._context = context
        self._driver = context.driver
        self._settings = context.settings
        self._way_out = context.way_out
        self._copies = copying.snapshots

    async def session(
        self,
        req: CreateRequest,
        idempotency_key: str | None,
        owner: str,
        snapshot: SnapshotRow | None = None,
        ceilings: Ceilings = NO_CEILINGS,
    ) -> Session:
        """``ceilings`` are those of the key that asks."""
        hash = _hash(req)
        renewed: Sequence[str] = ()
        limits: Limits | None = None
        if snapshot is not None:
            await self._check_place(snapshot)
            base = snapshot.spec
            renewed = [*req.env, *self._proxies(base.network, req.network)]
            req, limits = choices.continued(req, base, snapshot.image), base.limits
        root = await self._context.images.resolve(choices.choose_image(req.image, self._settings))
        needed = memory_needed(root.services)
        spec = choices.choose_spec(req, self._settings, self._driver.capabilities, ceilings, limits, needed)
        spec = replace(spec, renewed=tuple(renewed), workspace=self._workspace(req))
        ttl = choices.KEPT_SECONDS if req.kept else choices.choose_ttl(req.ttl_seconds, self._settings)
        session = await self._plan(spec, root, owner, ttl)
        session.record = replace(
            session.record,
            metadata=dict(req.metadata),
            snapshot_id=None if snapshot is None else snapshot.id,
            idempotency_key=idempotency_key,
            idempotency_hash=hash if idempotency_key else None,
        )
        return session

    async def fork(
        self,
        original: SessionRow,
        req: ForkRequest,
        idempotency_key: str | None,
        owner: str,
        ceilings: Ceilings = NO_CEILINGS,
    ) -> Session:
        """Return a copy of ``original``, as it is when the copy is made. Its workspace is copied, and not shared."""
        spec = original.spec
        limits = choices.choose_limits(CreateRequest(), self._settings, ceilings, spec.limits)
        spec = replace(spec, limits=limits, fork_of=original.id, workspace=None, renewed=(), kept=False)
        ttl = original.ttl_seconds if req.ttl_seconds is None else choices.choose_ttl(req.ttl_seconds, self._settings)
        root = await self._context.images.resolve(choices.choose_image(original.image, self._settings))
        session = await self._plan(spec, root, owner, ttl)
        session.record = replace(
            session.record,
            metadata=dict(original.metadata if req.metadata is None else req.metadata),
            cwd=original.cwd,
            idempotency_key=idempotency_key,
            idempotency_hash=_hash(req, "fork", original.id) if idempotency_key else None,
        )
        return session

    def wish(self, row: SessionRow) -> WorkspaceWish | None:
        """Return the workspace that this row is to have."""
        spec = row.spec
        if spec.workspace is None:
            return None
        return WorkspaceWish(spec.workspace, new_workspace_id(), spec.limits.disk_mb, self._settings.max_workspaces)

    async def _plan(self, spec: SessionSpec, root: ImageRoot, owner: str, ttl: int) -> Session:
        self._way_out.check(spec.network)
        await self._context.room.check("new sessions")
        now = self._context.clock()
        row = SessionRow(
            id=new_session_id(),
            owner=owner,
            status=Status.CREATING,
            image=root.name,
            node=self._context.node,
            driver=self._driver.name,
            spec=replace(spec, layout=str(root.layout), services=root.services, restored=None),
            cwd=_HOME,
            ttl_seconds=ttl,
            created_at=now,
            expires_at=now + ttl,
            last_activity_at=now,
            updated_at=now,
        )
        return Session(self._context, row, image=root)

    async def _check_place(self, snapshot: SnapshotRow) -> None:
        if snapshot.node != self._context.node and not await self._copies.reaches(snapshot.id):
            raise BadInput(
                f"snapshot: {snapshot.name} is on another machine, {snapshot.node}, and cannot be read from here; "
                "make the session there, or have the hosts share a snapshot_dir"
            )
        if snapshot.driver != self._driver.name:
            raise BadInput(f"snapshot: {snapshot.name} was taken with driver {snapshot.driver}; this is another one")

    def _proxies(self, before: NetworkPolicy, wanted: NetworkPolicy | None) -> set[str]:
        """Return the variables that tell of a way out, where that is not what the saved shells remember."""
        if wanted is None or wanted == before:
            return set()
        return {*self._way_out.environment(before), *self._way_out.environment(wanted)}

    def _workspace(self, req: CreateRequest) -> str | None:
        if req.workspace is None:
            return None
        if not self._driver.capabilities.workspace:
            raise DriverUnsupported(f"the {self._driver.name} driver has no named workspaces here")
        return check_name("workspace", req.workspace)


def _hash(req: CreateRequest | ForkRequest, *more: str) -> str:
    fields = asdict(req)
    fields.pop("purpose", None)  # whether it comes from the pool changes nothing
    told = {name: value for name, value in fields.items() if _LATER_FIELDS.get(name, _ALWAYS) != value}
    return hashlib.sha256(json.dumps([told, *more] if more else told, sort_keys=True, default=str).encode()).hexdigest()
