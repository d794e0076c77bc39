"""The address by which a browser reaches a thread's sandbox, where its driver has one. A cache, never an identity.

A preview may run out, or be withdrawn, at any time. Whatever says so lets us ask for a new one; nothing of it says
anything about the sandbox.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Protocol

import aiohttp
import structlog

from holdfast.errors import HoldfastError
from holdfast.network.outside import Outside
from holdfast.records.threads import Lease, ThreadRow
from holdfast.threads.tools import Tools

log = structlog.get_logger(__name__)

_EARLY_SECONDS = 60.0
_REFUSED = (401, 403, 404)
_MOST_LOOKS = 10_000


@dataclass(frozen=True, slots=True)
class Preview:
    url: str
    token: str | None
    expires_at: float | None


class Previews(Protocol):
    """What a driver offers."""

    @property
    def header(self) -> str:
        """In which header of a request the token of a preview goes."""
        ...

    async def preview(self, session_id: str, /) -> Preview | None:
        """None if there is no such thing here. Raises ``DriverError``."""
        ...


class NoPreviews:
    header = "authorization"

    async def preview(self, _session_id: str, /) -> Preview | None:
        return None


def stale(status: int, content_type: str) -> bool:
    """Whether an answer by way of a preview means that the preview itself is not good any more.

    Providers answer so: 401, 403 and 404, and 400 with a page for people where the sandbox would speak JSON.
    """
    return status in _REFUSED or (status == 400 and content_type.partition(";")[0].strip() == "text/html")


async def refresh(tools: Tools, previews: Previews, lease: Lease, row: ThreadRow, *, bad: bool = False) -> ThreadRow:
    """Return the row with a preview that is good for a while; ``bad`` means that the one in it was found ``stale``.

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


class PreviewKeeper:
    """Keeps the previews of threads good, as far as they are used. Use ``close`` at the end."""

    def __init__(self, tools: Tools, previews: Previews) -> None:
        self._tools = tools
        self._previews = previews
        self._looked: dict[str, float] = {}
        """When the preview of a thread was last looked at or given, by the loop's clock, which does not jump."""
        self._http: aiohttp.ClientSession | None = None
        self._outside = Outside()

    async def keep_fresh(self, lease: Lease, row: ThreadRow) -> ThreadRow:
        """Return the row with a preview that is good, as far as is known; replace one that has run out or is refused.

        Looked at once in a while: a thread that is talked to all the time does not wait for its preview each time.
        """
        fresh = await refresh(self._tools, self._previews, lease, row)
        if fresh.preview_url is None:
            return fresh
        given = fresh is not row
        if not self._due(row.id) and not given:
            return fresh
        self._looked[row.id] = asyncio.get_running_loop().time()
        if given or not await self._is_stale(fresh.id, fresh.preview_url, fresh.preview_token):
            return fresh
        return await refresh(self._tools, self._previews, lease, fresh, bad=True)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            await self._outside.close()
            self._http = None

    def _due(self, thread_id: str) -> bool:
        long_ago = asyncio.get_running_loop().time() - self._tools.settings.preview_trust_seconds
        if len(self._looked) > _MOST_LOOKS:
            self._looked = {name: at for name, at in self._looked.items() if at > long_ago}
        return self._looked.get(thread_id, long_ago) <= long_ago

    async def _is_stale(self, thread_id: str, url: str, token: str | None) -> bool:
        """Whether it says so itself. One that cannot be reached, or says nothing in time, proves nothing."""
        headers = {} if token is None else {self._previews.header: token}
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):
            async with self._session().get(url, headers=headers, allow_redirects=False) as answer:
                if stale(answer.status, answer.headers.get("content-type", "")):
                    log.info("thread.preview.stale", thread_id=thread_id, status=answer.status)
                    return True
        return False

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:  # made in the loop that uses it, and only where there are previews
            self._http = aiohttp.ClientSession(
                connector=self._outside.connector(),
                timeout=aiohttp.ClientTimeout(total=self._tools.settings.preview_look_seconds),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"user-agent": "holdfast"},
            )
        return self._http
