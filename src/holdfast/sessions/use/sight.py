"""Who may look only at files: what is read for them is read so that no link leads to where processes show themselves.

The edge knows who asks, the runner resolves the path; in between, every read of this task says it.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from holdfast.protocol.frames import Header

_files_only: ContextVar[bool] = ContextVar("files_only", default=False)


def see_files_only() -> None:
    """From now on in this task, and in those that it starts."""
    _files_only.set(True)


@contextlib.contextmanager
def files_only() -> Iterator[None]:
    """Around what is read for others than who may use the session."""
    token = _files_only.set(True)
    try:
        yield
    finally:
        _files_only.reset(token)


def sight_fields() -> Header:
    """Return what a call that reads carries."""
    return {"files_only": True} if _files_only.get() else {}
