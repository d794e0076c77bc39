"""A named workspace on the host: a disk that survives sandboxes, and the name of the session that uses it now.

<workspace>/workspace.json   the ids that own its files; written last
            holder           the session that has it, or nothing
            disk.img, disk   as a session's own disk; the files are in ``disk/workspace``
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast.drivers.blocking import run_to_the_end
from holdfast.drivers.disk.disk import Disk
from holdfast.drivers.disk.tree_removal import remove_tree
from holdfast.errors import BadInput, DriverConflict, DriverTransient, DriverUnsupported


@dataclass(frozen=True, slots=True)
class Ownership:
    """The ids that own the files; a sandbox with other ids cannot use them."""

    root_id: int | None
    limited: bool
    writable_root: bool


class Workspace:
    """One named workspace. ``homes`` has the directories of all sandboxes: a holder without one there is gone."""

    def __init__(self, place: Path, homes: Path, *, limited: bool) -> None:
        self.place = place
        self._homes = homes
        self.disk = Disk(place, limited=limited)
        self._facts = place / "workspace.json"

    def claim(self, session_id: str, owner: Ownership) -> None:
        """Reserve the workspace for this session, until ``release``. Raises OSError, and the errors of ``create``. This
        blocks."""
        with self._locked() as holder:
            self._check_free(holder, session_id)
            self._check_ownership(owner)
            _rewrite(holder, session_id)

    def _check_free(self, holder: int, session_id: str = "") -> None:
        other = _read(holder)
        if other not in ("", session_id) and (self._homes / other).exists():
            raise DriverConflict(f"the workspace {self.place.name} is in use by {other}; destroy that session first")

    def _check_ownership(self, owner: Ownership) -> None:
        try:
            first = Ownership(**json.loads(self._facts.read_text()))
        except FileNotFoundError:
            scratch = self._facts.with_suffix(".new")
            scratch.write_text(json.dumps(asdict(owner)))
            scratch.rename(self._facts)
            return
        except (ValueError, TypeError) as error:
            raise DriverTransient(f"{self._facts} cannot be read: {error}") from error
        if (first.root_id, first.limited) != (owner.root_id, owner.limited):
            raise DriverUnsupported(
                f"the workspace {self.place.name} was made by a daemon that ran as another user or under another driver"
            )
        if first.writable_root != owner.writable_root:
            raise BadInput(
                f"writable_root: must be {first.writable_root} with this workspace, whose files belong to another user"
            )

    def holder(self) -> str:
        try:
            return (self.place / "holder").read_text()
        except FileNotFoundError:
            return ""

    def release(self, session_id: str) -> None:
        """Release the workspace, unless another session has it. This blocks."""
        if self.place.is_dir():
            with self._locked() as holder:
                if _read(holder) == session_id:
                    _rewrite(holder, "")

    async def remove(self) -> None:
        """Remove the workspace. Raises OSError, and ``DriverConflict`` while a session has it."""
        if await run_to_the_end(self._begin_removal):
            await self.disk.remove()
            await run_to_the_end(remove_tree, self.place)

    def _begin_removal(self) -> bool:
        if not self.place.is_dir():
            return False
        with self._locked() as holder:
            self._check_free(holder)
        return True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        descriptor = os.open(self.place / "holder", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


def _read(descriptor: int) -> str:
    return os.pread(descriptor, 4096, 0).decode()


def _rewrite(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
