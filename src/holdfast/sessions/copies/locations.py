"""Where what outlives sessions is: rows and directories of snapshots and workspaces."""

from dataclasses import dataclass
from pathlib import Path

from holdfast.store import SnapshotStore, WorkspaceStore


@dataclass(frozen=True, slots=True)
class Kept:
    """``root`` is the daemon's state directory; ``shared`` one where hosts keep their snapshots for each other."""

    snapshots: SnapshotStore
    workspaces: WorkspaceStore
    root: Path
    shared: Path | None = None

    @property
    def fork_dir(self) -> Path:
        """What forks are made of: needed for a moment, and only here."""
        return self.root / "snapshots"

    def snapshot_dir(self, node: str) -> Path:
        """Where this node writes, and nobody else: two installations that share a directory do each other no harm."""
        return self.fork_dir if self.shared is None else self.shared / node

    @property
    def workspace_dir(self) -> Path:
        return self.root / "workspaces"

    @property
    def mark_dir(self) -> Path:
        return self.root / "marks"
