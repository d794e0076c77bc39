"""A session's own choices, as its row keeps them: enough to make its sandbox, now or after a crash."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from holdfast.records.limits import Limits
from holdfast.records.network import NetworkPolicy
from holdfast.records.services import ServiceSpecs, read_services, services_to_wire
from holdfast.records.sleep import SleepPolicy as SleepPolicy


class SnapshotKind(StrEnum):
    """What is kept of a session, and what came back of it."""

    FILES = "files"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """What the caller chose, with defaults filled in."""

    limits: Limits
    network: NetworkPolicy
    writable_root: bool
    env: Mapping[str, str]
    sleep: SleepPolicy = field(default_factory=SleepPolicy)
    layout: str | None = None
    """The tree of its image that it was made from; set when it is made."""
    services: ServiceSpecs = ()
    """What that tree declares; set with it."""
    fork_of: str | None = None
    """The session that it is a copy of."""
    renewed: tuple[str, ...] = ()
    """Variables that it has from its own environment, and not from the saved shells that it starts with."""
    restored: SnapshotKind | None = None
    """What came back of what it was made from; set when it is made."""
    workspace: str | None = None
    """The name of its workspace."""
    kept: bool = False
    """It is a thread's: it ends when the thread says so, and has a way to models."""

    def to_json(self) -> str:
        fields = {**asdict(self), "network": self.network.to_wire(), "services": services_to_wire(self.services)}
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str) -> "SessionSpec":
        fields = json.loads(text)
        return cls(
            limits=Limits(**fields["limits"]),
            network=NetworkPolicy.from_wire(fields["network"]),
            writable_root=fields["writable_root"],
            env=fields["env"],
            sleep=SleepPolicy(**fields.get("sleep", {})),
            layout=fields.get("layout"),
            services=read_services(fields.get("services") or {}),
            fork_of=fields.get("fork_of"),
            renewed=tuple(fields.get("renewed", ())),
            restored=SnapshotKind(fields["restored"]) if fields.get("restored") else None,
            workspace=fields.get("workspace"),
            kept=fields.get("kept", False),
        )
