"""The runner's one exception: a call that it refuses, with a code that the host turns into a typed error again."""

from __future__ import annotations

import errno

from holdfast.runner.lean import Callable

Reply = Callable[..., None]
"""``reply(header, body=b"")`` answers a call."""

_CODES = {
    errno.ENOENT: "file_not_found",
    errno.ENOTDIR: "not_a_file",
    errno.EISDIR: "not_a_file",
    errno.ENXIO: "not_a_file",
    errno.ENODEV: "not_a_file",
    errno.EACCES: "forbidden",
    errno.EPERM: "forbidden",
    errno.EROFS: "forbidden",
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
    errno.EFBIG: "too_large",
    errno.EEXIST: "file_exists",
    errno.ENOTEMPTY: "not_empty",
    errno.EBUSY: "conflict",
    errno.ENAMETOOLONG: "bad_input",
    errno.ELOOP: "bad_input",
    errno.EINVAL: "bad_input",
}


class Refused(Exception):
    """A call is refused. ``code`` is one of ``holdfast.errors``, and ``message`` is for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def refuse(reply: Reply, code: str, message: str) -> None:
    reply({"error": {"code": code, "message": message}})


def explain(error: OSError, path: str) -> Refused:
    """Translate an error of the kernel about ``path``; the only place that does so."""
    code = _CODES.get(error.errno or 0, "unavailable")
    hint = "; the root file system is read-only, write below /workspace or /tmp" if error.errno == errno.EROFS else ""
    return Refused(code, f"{path}: {error.strerror}{hint}")
