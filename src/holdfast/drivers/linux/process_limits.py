"""The limits of a sandbox's processes on resources that the kernel counts per user."""

import resource
from collections.abc import Mapping

_MOST = {
    "RLIMIT_SIGPENDING": (resource.RLIMIT_SIGPENDING, 16384),
    "RLIMIT_MSGQUEUE": (resource.RLIMIT_MSGQUEUE, 819_200),
    "RLIMIT_MEMLOCK": (resource.RLIMIT_MEMLOCK, 64 << 20),
}
"""Pending signals, timers included; bytes of POSIX message queues; bytes of locked memory."""
_SHARE = 4


def process_limits(*, shared: bool) -> Mapping[str, int]:
    """The limits by their names in an OCI configuration; never more than the daemon's own.

    ``shared`` means that all sandboxes run as one user and share its resources, so that each gets only a part.
    """
    found = {}
    for name, (number, most) in _MOST.items():
        own = resource.getrlimit(number)[1]
        if own != resource.RLIM_INFINITY:
            most = min(most, own // _SHARE if shared else own)
        found[name] = most
    return found
