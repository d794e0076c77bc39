"""Previews of threads: where a program in a thread's sandbox can be seen, and a token that lets one in there.

A preview is kept in the thread's row until it is about to expire. It is handed out only if the gateway would still take
it, so one of an earlier sandbox, of another port, or of an API key that was removed is made anew.
"""

from collections.abc import Callable
from dataclasses import replace

import structlog

from holdfast.callers.types import Caller
from holdfast.errors import DiskFull, HoldfastError, Unavailable
from holdfast.gateway.addresses import HostNames, SessionAddress
from holdfast.gateway.tunnels import Tunnels
from holdfast.gateway.visits import Token, Visits
from holdfast.store.threads.threads import ThreadStore
from holdfast.threads.types import ThreadView

log = structlog.get_logger(__name__)

PREVIEW_SECONDS = 900.0
LEFT_SECONDS = 60.0
"""One that is good for less is renewed when it is asked for."""


class Previews:
    def __init__(
        self,
        threads: ThreadStore,
        visits: Visits,
        tunnels: Tunnels,
        names: HostNames,
        clock: Callable[[], float],
        default_port: int | None = None,
    ) -> None:
        """``default_port``: of threads that name none."""
        self._threads = threads
        self._visits = visits
        self._tunnels = tunnels
        self._names = names
        self._clock = clock
        self._default_port = default_port

    def address(self, view: ThreadView, asked_at: str) -> ThreadView:
        """Return the thread with the address of its preview, and no token. ``asked_at`` is the host name by which the
        caller reached the API."""
        place = self._place(view)
        url = None if place is None else self._names.url(place, asked_at) + "/"
        return _with_preview(view, url, None, None)

    async def ready(self, view: ThreadView, caller: Caller, asked_at: str) -> ThreadView:
        """Return the thread with a preview that is good for a minute at least, if it has one and the caller may use
        it."""
        place = self._place(view)
        if place is None or not caller.sees_secrets:
            return self.address(view, asked_at)
        url = self._names.url(place, asked_at) + "/"
        kept = self._still_good(place, view.row.preview_token)
        if kept is not None:
            return _with_preview(view, url, view.row.preview_token, kept.until)
        token = Token(view.row.owner, float(int(self._clock() + PREVIEW_SECONDS)), caller.key_id)
        signed = self._visits.make_token(place, token)
        log.info(
            "gateway.preview",
            session_id=place.session_id,
            label=place.label,
            thread_id=view.row.id,
            owner=view.row.owner,
            key=caller.name,
        )
        try:
            await self._threads.note_preview(view.row.id, place.session_id, url, signed, token.until)
        except (Unavailable, DiskFull) as error:  # it is as good as any, only nobody else gets it
            log.warning("gateway.preview.not_kept", thread_id=view.row.id, code=error.code)
        return _with_preview(view, url, signed, token.until)

    def _place(self, view: ThreadView) -> SessionAddress | None:
        port = view.options.preview_port or self._default_port
        if port is None or view.row.session_id is None or self._tunnels.is_closed(port):
            return None
        return SessionAddress(str(port), view.row.session_id)

    def _still_good(self, place: SessionAddress, token: str | None) -> Token | None:
        """Return what a token says if the gateway takes it, now and for a while."""
        if token is None:
            return None
        try:
            found = self._visits.check_token(place, token)
        except HoldfastError:
            return None
        return found if found.until - self._clock() >= LEFT_SECONDS else None


def _with_preview(view: ThreadView, url: str | None, token: str | None, expires_at: float | None) -> ThreadView:
    row = replace(view.row, preview_url=url, preview_token=token, preview_expires_at=expires_at)
    return replace(view, row=row)
