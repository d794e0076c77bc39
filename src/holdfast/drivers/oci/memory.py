"""A sandbox's memory on disk: the directory ``memory`` in its own, which the runtime writes at a checkpoint.

It is there only as a whole: the runtime writes to ``memory.new``, and whoever waits for the runtime gives it its name.
That is not the daemon but a shell, which outlives it: a daemon that is killed during a checkpoint or a restore leaves
one that is finished all the same. What is restored is renamed at once, to ``memory.used``: it must not live twice.

What is not asynchronous blocks, for milliseconds.
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.drivers.commands import run
from holdfast.drivers.disk.file_copy import copy_file
from holdfast.drivers.disk.tree_removal import remove_tree
from holdfast.drivers.linux.host_processes import mentioning
from holdfast.errors import DriverQuota, DriverTransient

_SECONDS = 60.0
_RESERVE = 64 << 20
"""What the host's disk keeps free beside the image."""
_AND_RENAME = 'from=$1 to=$2; shift 2; "$@" && mv -T "$from" "$to"; exit $?'
"""The shell stays until it is done: who is in the middle of an ``exec`` has no command line to be known by."""


class MemoryImage:
    """The image of the sandbox whose directory this is."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.path = directory / "memory"
        self.half = directory / "memory.new"
        self.used = directory / "memory.used"

    def exists(self) -> bool:
        return self.path.is_dir()

    def is_being_written(self) -> bool:
        """Say whether somebody is at it, be it on behalf of a daemon that is dead by now.

        Who wants to know what came of it asks this first: it may be complete by the time this has been found out.
        """
        return self.half.is_dir() and bool(mentioning(str(self.half)))

    async def save(self, command: Sequence[str], name: str, needed: int) -> str:
        """Have the runtime's ``command`` write ``name``'s memory. Returns what went wrong, or nothing.

        Raises ``DriverQuota`` if ``needed`` bytes would not fit, and ``DriverTransient``.
        """
        try:
            await asyncio.to_thread(self._make_room, needed)
        except OSError as error:
            raise DriverTransient(f"cannot prepare {self.half}: {error}") from error
        done = await run(*self._then_keep((*command, "--image-path", str(self.half), name)), timeout=_SECONDS)
        return "" if await asyncio.to_thread(self.exists) else done.complaint()

    def _make_room(self, needed: int) -> None:
        self.discard()
        found = os.statvfs(self._directory)
        if found.f_bavail * found.f_frsize < needed + _RESERVE:
            raise DriverQuota(
                f"the disk of {self._directory} has no room for {needed >> 20} MB of memory; free some, or keep files"
            )
        self.half.mkdir(mode=0o700)

    def _then_keep(self, command: Sequence[str]) -> Sequence[str]:
        """Return ``command``, which writes the image, followed by the rename that makes it valid."""
        return "sh", "-c", _AND_RENAME, "sh", str(self.half), str(self.path), *command

    def then_retire(self, command: Sequence[str]) -> Sequence[str]:
        """Return ``command``, which restores the image, followed by the rename that makes it invalid."""
        return "sh", "-c", _AND_RENAME, "sh", str(self.path), str(self.used), *command

    def copy_to(self, directory: Path) -> None:
        """Make it the image of what is in another directory, too. Blocks are shared: nobody ever changes an image."""
        copy = MemoryImage(directory)
        copy.discard()
        copy.half.mkdir(mode=0o700)
        for part in self.path.iterdir():
            try:
                os.link(part, copy.half / part.name)
            except OSError:  # another file system
                copy_file(part, copy.half / part.name)
        copy.half.rename(copy.path)

    def discard(self) -> None:
        """Remove all images. The valid name goes first: half an image must not have it."""
        if self.exists():
            remove_tree(self.used)
            self.path.rename(self.used)
        self.clean()

    def clean(self) -> None:
        """Remove images that are not valid, or not any more."""
        for path in (self.half, self.used):
            remove_tree(path)
