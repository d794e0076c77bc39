"""Where what outlives sessions is: rows and directories of snapshots and workspaces."""

from dataclasses import dataclass
from pathlib import Path

from holdfast.store import SnapshotStore, WorkspaceStore


@dataclass(frozen=True, slots=True)
class Kept:
    """``root`` is the daemon's state directory."""

    snapshots: SnapshotStore
    workspaces: WorkspaceStore
    root: Path

    @property
    def snapshot_dir(self) -> Path:
        return self.root / "snapshots"

    @property
    def workspace_dir(self) -> Path:
        return self.root / "workspaces"
