"""Which ids of the host the users and groups of sandboxes are. Pure.

On disk, files of sandboxes always belong to ids from ``ID_BASE``, which nobody else has.
"""

from collections.abc import Sequence

from holdfast.drivers.inside import SANDBOX_USER

ID_BASE = 1_000_000_000
ID_COUNT = 65536

IdMap = tuple[int, int, int]
"""First id inside, first id outside, how many."""


def of_disk_files(base: int) -> Sequence[IdMap]:
    """How files of disks and images are shown to the sandbox whose root is ``base``."""
    return [(ID_BASE, base, ID_COUNT)]


def of_host_files(base: int) -> Sequence[IdMap]:
    """How the host's own files are shown to sandboxes whose root is ``base``: root's belong to their root.

    The user of the host who has the number of the sandboxes' own user is left out: that one must not become the owner
    of another one's private files.
    """
    after = SANDBOX_USER + 1
    return [(0, base, SANDBOX_USER), (after, base + after, ID_COUNT - after)]
