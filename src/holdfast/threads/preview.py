"""The address by which a browser reaches a thread's sandbox, where its driver has one. A cache, never an identity.

A preview may run out, or be withdrawn, at any time. Whatever says so lets us ask for a new one; nothing of it says
anything about the sandbox.
"""

from dataclasses import dataclass
from typing import Protocol

import structlog

from holdfast.errors import HoldfastError
from holdfast.store.thread_rows import Lease, ThreadRow
from holdfast.threads.tools import Tools

log = structlog.get_logger(__name__)

_EARLY_SECONDS = 60.0
_REFUSED = (401, 403, 404)


@dataclass(frozen=True, slots=True)
class Preview:
    url: str
    token: str | None
    expires_at: float | None


class Previews(Protocol):
    """What a driver offers."""

    async def preview(self, session_id: str, /) -> Preview | None:
        """None if there is no such thing here. Raises ``DriverError``."""
        ...


class NoPreviews:
    async def preview(self, _session_id: str, /) -> Preview | None:
        return None


def stale(status: int, content_type: str) -> bool:
    """Whether an answer by way of a preview means that the preview itself is not good any more.

    Providers answer so: 401, 403 and 404, and 400 with a page for people where the sandbox would speak JSON.
    """
    return status in _REFUSED or (status == 400 and content_type.partition(";")[0].strip() == "text/html")


async def refreshed(tools: Tools, previews: Previews, lease: Lease, row: ThreadRow, *, bad: bool = False) -> ThreadRow:
    """The row with a preview that is good for a while; ``bad``: the one in it was found ``stale``.

    A provider that gives none now is no reason to stop: the sandbox is reached in other ways, too.
    """
    good = row.preview_url is not None and (
        row.preview_expires_at is None or row.preview_expires_at > tools.clock() + _EARLY_SECONDS
    )
    if row.session_id is None or (good and not bad):
        return row
    try:
        found = await previews.preview(row.session_id)
    except HoldfastError as error:
        log.warning("thread.preview.failed", thread_id=row.id, code=error.code, error=error.message)
        return row
    if found is None:
        return row
    return await tools.store.threads.change(
        lease,
        {"preview_url": found.url, "preview_token": found.token, "preview_expires_at": found.expires_at},
    )
