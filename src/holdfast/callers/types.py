"""What a key is, as plain frozen data: its scope, the caller behind it, and the key as an admin sees it."""

from dataclasses import dataclass
from enum import StrEnum

from holdfast.callers.ceilings import NO_CEILINGS, Ceilings

ROOT_NAME = "root"
"""The name of the key from the configuration or the state directory. It is in no table and cannot be removed."""


class Scope(StrEnum):
    """What a key may do. Each scope may do what the ones before it may."""

    READ = "read"
    """Look: at sessions, results and files of its owner, and at images."""
    USE = "use"
    """Make, use and destroy sessions of its owner."""
    ADMIN = "admin"
    """Everything, in all sessions; also keys and images."""

    def includes(self, other: "Scope") -> bool:
        return _RANK[self] >= _RANK[other]


_RANK = {scope: rank for rank, scope in enumerate(Scope)}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: one key. ``owner`` is whose sessions it makes and sees, by default its own name."""

    key_id: str
    name: str
    scope: Scope
    owner: str
    max_sessions: int | None
    """How many live sessions its owner may have when it makes another; None: as many as the daemon allows."""
    ceilings: Ceilings = NO_CEILINGS
    """The most that a session may have which it makes; those of the daemon hold as well."""

    @property
    def sees_all(self) -> bool:
        return self.scope is Scope.ADMIN

    @property
    def sees_secrets(self) -> bool:
        """What it could have set itself: values in the environment of its owner's sandboxes."""
        return self.scope.includes(Scope.USE)


ROOT = Caller("", ROOT_NAME, Scope.ADMIN, ROOT_NAME, None)


@dataclass(frozen=True, slots=True)
class KeyView:
    """A key as an admin may see it: everything but the key itself, which nobody can see again."""

    id: str
    name: str
    scope: Scope
    owner: str
    max_sessions: int | None
    created_at: float
    last_used_at: float | None
    ceilings: Ceilings = NO_CEILINGS
