"""The metadata of a snapshot, in its ``snapshot.json``: enough to know where it can be restored."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast.drivers.base import Driver, SandboxSpec
from holdfast.errors import BadInput, DriverUnsupported, SnapshotBroken

FORMAT = 1
_NAME = "snapshot.json"


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """The metadata of one snapshot.

    ``root_id`` is the id that owns the files of the sandbox's root on disk. ``limited`` means that each disk is a file
    system in a file (``disk.img``); otherwise it is a plain directory (``disk``).
    """

    driver: str
    image: str
    disk_mb: int
    writable_root: bool
    root_id: int | None = None
    limited: bool = False
    memory: bool = False
    format: int = FORMAT

    def write(self, directory: Path) -> None:
        """Write the metadata. Raises OSError."""
        (directory / _NAME).write_text(json.dumps(asdict(self)) + "\n")

    @classmethod
    def read(cls, directory: Path) -> "SnapshotFacts":
        """Read the metadata. Raises ``SnapshotBroken`` if the snapshot is not complete, or made by a newer version."""
        try:
            content = json.loads((directory / _NAME).read_text())
        except FileNotFoundError:
            raise SnapshotBroken(f"there is no complete snapshot in {directory}; take it again") from None
        except (OSError, ValueError) as error:
            raise SnapshotBroken(f"the snapshot in {directory} cannot be read: {error}; take it again") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise SnapshotBroken(f"the snapshot in {directory} has a format that this version does not know; upgrade")
        known = {name: content[name] for name in cls.__slots__ if name in content}
        try:
            facts = cls(**known)
            facts._check_types()
            return facts
        except TypeError as error:
            raise SnapshotBroken(f"the snapshot in {directory} lacks facts: {error}; take it again") from error

    def _check_types(self) -> None:
        texts, switches = (self.driver, self.image), (self.writable_root, self.limited, self.memory)
        numbers = [number for number in (self.disk_mb, self.root_id) if number is not None]
        if not (
            all(isinstance(text, str) for text in texts)
            and all(isinstance(switch, bool) for switch in switches)
            and all(type(number) is int and number >= 0 for number in numbers)
        ):
            raise TypeError("one of them is of another kind")

    def check(self, spec: SandboxSpec, driver: Driver, *, limited: bool = False) -> None:
        """Raise the error of ``restore`` if a sandbox with this spec cannot be made from it."""
        if self.driver != driver.name:
            raise DriverUnsupported(f"this snapshot was taken under driver {self.driver}; restore it under that one")
        if (self.root_id, self.limited) != (driver.root_id, limited):
            raise DriverUnsupported(
                "this snapshot was taken by a daemon that ran as another user or with other ids; restore it as that one"
            )
        if self.writable_root != spec.writable_root:
            raise BadInput(f"writable_root: must be {self.writable_root}, as when the snapshot was taken")
        if self.memory and not driver.capabilities.memory_copies:
            raise DriverUnsupported("this snapshot holds memory, which cannot be restored here")
