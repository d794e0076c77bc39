"""How many descriptors the daemon may have open.

Each session costs three (its link's socket, the connection of its runner, its counter of out-of-memory kills), each
stream and each client more, and a sandbox can open tens of connections by itself. The usual soft limit of 1024 is
there for programs that use select(), which we do not; it would end at some 330 sessions.
"""

import contextlib
import resource


def raise_limit() -> None:
    """As high as we may go without asking anyone. Sandboxes are given limits of their own."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # we work with what there is
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
