"""Sandboxes that wait to become sessions: how many of which kind there should be, and which there are. Pure: no I/O.

A kind is the name of an image, for sandboxes that have run nothing; or that of a purpose, for those in which something
was started already, which is only for creates with that purpose (``warmth``).

A pooled sandbox has no row. Its claim is the insert of its row, as an active session with the sandbox's own id: the
primary key lets that happen once, whoever tries, and a crash leaves either no row (the sandbox is a stray, which the
reconciler removes) or an ordinary session. So no pooled sandbox outlives its daemon, and none is handed out twice.

::

    reserve ──► being made ──put──► ready ──take──► taken ──release──► a session, or gone, or a stray
                                      ▲               │
                                      └──put (clean)──┘
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from holdfast.records.sessions import SessionRow
from holdfast.records.spec import SessionSpec

_DRIVERS_OWN = frozenset({"SANDBOX_ID"})
"""Variables that a driver may set for itself when it makes a sandbox; who wants another value gets a new sandbox."""


@dataclass(frozen=True, slots=True)
class WarmSandbox:
    """A sandbox whose runner has dialled and that has run nothing, but for what its purpose wants. ``row`` is what its
    row would be by default."""

    row: SessionRow
    spec: SessionSpec
    kind: str
    purpose: str | None = None
    fingerprint: str = ""
    """Of what was done for its purpose."""

    @classmethod
    def of(
        cls, row: SessionRow, *, kind: str | None = None, purpose: str | None = None, fingerprint: str = ""
    ) -> "WarmSandbox":
        spec = replace(row.spec, env={})
        return cls(row, spec, kind or row.image, purpose, fingerprint)

    @property
    def id(self) -> str:
        return self.row.id

    def fits(self, row: SessionRow, spec: SessionSpec, purpose: str | None = None) -> bool:
        """Say whether it is what this row asks for, but for what can still be set: the environment, and who keeps it.

        In one with a purpose, programs run already that would not see another environment.
        """
        if (self.row.image, self.row.driver) != (row.image, row.driver):
            return False
        if self.purpose is not None:
            return self.purpose == purpose and self.spec == spec
        return self.spec == replace(spec, env={}, kept=self.spec.kept)


@dataclass(slots=True)
class _Shelf:
    """The sandboxes of one kind, each in one of three places; of those that are ready the oldest is taken first."""

    wanted: int
    making: set[str] = field(default_factory=set)
    ready: dict[str, WarmSandbox] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    @property
    def missing(self) -> int:
        return self.wanted - len(self.making) - len(self.ready)

    def has(self, session_id: str) -> bool:
        return session_id in self.ready or session_id in self.making or session_id in self.taken

    def take(self, session_id: str) -> WarmSandbox:
        self.taken.add(session_id)
        return self.ready.pop(session_id)


class Pool:
    """What is kept ready. Nothing in it awaits, so tasks cannot come between its steps."""

    def __init__(self, wanted: Mapping[str, int]) -> None:
        self._shelves = {kind: _Shelf(count) for kind, count in wanted.items() if count > 0}

    @property
    def kinds(self) -> list[str]:
        return list(self._shelves)

    def owns(self, session_id: str) -> bool:
        """Say whether the sandbox with this id is being made, ready or taken: not a stray, although it has no row."""
        return any(shelf.has(session_id) for shelf in self._shelves.values())

    def ready(self, kind: str) -> list[WarmSandbox]:
        return list(self._shelves[kind].ready.values())

    def count_ready(self, kind: str) -> int:
        return len(self._shelves[kind].ready)

    def everything(self) -> list[str]:
        """Return all that it owns."""
        return [one for shelf in self._shelves.values() for one in (*shelf.making, *shelf.ready, *shelf.taken)]

    def most_wanted(self, kinds: Iterable[str]) -> str | None:
        """Of these kinds, the one that lacks the largest share of its sandboxes; None when none lacks any."""
        lacking = {kind: shelf for kind in kinds if (shelf := self._shelves[kind]).missing > 0}
        return max(lacking, key=lambda kind: lacking[kind].missing / lacking[kind].wanted, default=None)

    def lacks(self, kind: str) -> bool:
        return self._shelves[kind].missing > 0

    def reserve(self, session_id: str, kind: str) -> None:
        """A sandbox with this id is about to be made."""
        self._shelves[kind].making.add(session_id)

    def put(self, ready: WarmSandbox) -> None:
        """It is made; or it was taken and comes back as it went."""
        self.release(ready.id)
        self._shelves[ready.kind].ready[ready.id] = ready

    def take(self, row: SessionRow, purpose: str | None = None) -> WarmSandbox | None:
        """One that fits, the most prepared first; None when none is ready, or when the row asks for something else."""
        spec = row.spec
        if _DRIVERS_OWN & spec.env.keys():
            return None
        for shelf in self._shelves.values() if purpose is not None else ():
            if found := _fitting(shelf, row, spec, purpose, plain=False):
                return shelf.take(found)
        shelf = self._shelves.get(row.image, _Shelf(0))
        found = _fitting(shelf, row, spec, purpose, plain=True)
        return None if found is None else shelf.take(found)

    def withdraw(self, session_id: str) -> WarmSandbox | None:
        """Take this very one, if it is ready: it is of no use any more."""
        for shelf in self._shelves.values():
            if session_id in shelf.ready:
                return shelf.take(session_id)
        return None

    def release(self, session_id: str) -> None:
        """It is a session now, or gone, or the reconciler's business."""
        for shelf in self._shelves.values():
            shelf.making.discard(session_id)
            shelf.taken.discard(session_id)
            shelf.ready.pop(session_id, None)


def _fitting(shelf: _Shelf, row: SessionRow, spec: SessionSpec, purpose: str | None, *, plain: bool) -> str | None:
    candidates = (ready for ready in shelf.ready.values() if (ready.purpose is None) == plain)
    return next((ready.id for ready in candidates if ready.fits(row, spec, purpose)), None)
