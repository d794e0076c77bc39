"""Maps the user and group ids of sandboxes to ids of the host. The functions here are pure.

On disk, files of sandboxes always belong to ids from ``ID_BASE`` on, which no user of the host has.
"""

from collections.abc import Sequence

from holdfast.drivers.inside import SANDBOX_USER

ID_BASE = 1_000_000_000
ID_COUNT = 65536

IdMap = tuple[int, int, int]
"""First id inside, first id outside, how many."""


def of_disk_files(base: int) -> Sequence[IdMap]:
    """Return the map by which a sandbox whose root is ``base`` sees the files of disks and images."""
    return [(ID_BASE, base, ID_COUNT)]


def of_host_files(base: int) -> Sequence[IdMap]:
    """The map by which a sandbox whose root is ``base`` sees the host's own files: those of root belong to its root.

    The id of the sandbox's own user is left out: otherwise it would own the private files of the user of the host who
    has the same number.
    """
    after = SANDBOX_USER + 1
    return [(0, base, SANDBOX_USER), (after, base + after, ID_COUNT - after)]
