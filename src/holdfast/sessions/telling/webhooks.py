"""Telling webhooks what happened: in order, at least once each, signed, and again until it is heard.

Each webhook has a task of its own, so one slow receiver delays no other. What a task knows stands in the webhook's
cursor in the store: it is leased while events are sent, so that of several daemons on one database one does it, and a
daemon that starts again goes on where the last one was.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import aiohttp
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge
from yarl import URL

from holdfast.concurrency import cancel_and_wait
from holdfast.errors import HoldfastError
from holdfast.network.outside import Outside
from holdfast.records.events import EventRow, WebhookCursor
from holdfast.sessions.telling.events import EventFeed
from holdfast.sessions.telling.webhook import Webhook, body, headers, retry_seconds
from holdfast.sessions.types import Clock
from holdfast.sessions.watch.clock import ClockWatch
from holdfast.store import EventStore, WebhookCursors
from holdfast.store.webhooks import LONGEST_WAIT_SECONDS

log = structlog.get_logger(__name__)

SEND_SECONDS = 10.0
LEASE_SECONDS = 60.0  # longer than one try takes
_PAGE = 100
_STALLED_SECONDS = 15.0
_LONGEST_WAIT_SECONDS = 30.0
"""Look again at least so often, whatever the other daemons' leases and clocks say."""


class WebhookMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.tries = Counter(
            "holdfast_webhook_tries_total",
            "Events that were sent to a webhook, by what came of it.",
            ["host", "outcome"],
            registry=registry,
        )
        self.failures = Gauge(
            "holdfast_webhook_failures_in_a_row",
            "Tries that failed since the last one that did not.",
            ["host"],
            registry=registry,
        )


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    webhooks: Sequence[Webhook]
    retry_seconds: float
    """An event that is older than this, and still cannot be delivered, is skipped."""


class Webhooks:
    """All webhooks of this daemon. Use ``running()`` around its use."""

    def __init__(
        self,
        cursors: WebhookCursors,
        events: EventStore,
        feed: EventFeed,
        settings: WebhookSettings,
        *,
        node: str,
        clock: Clock,
        metrics: WebhookMetrics,
        outside: Outside,
        steady: Clock | None = None,
    ) -> None:
        """``steady`` is a clock that nobody can set."""
        self._watch = ClockWatch(clock, steady)
        self._outside = outside
        self._cursors = cursors
        self._events = events
        self._feed = feed
        self._settings = settings
        self._node = node
        self._clock = clock
        self._metrics = metrics

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """From here on every new event is told, until the end; what then was not told is told by the next daemon."""
        mine = self._settings.webhooks
        for webhook in mine:
            await self._cursors.ensure(webhook.id, now=self._clock())
        timeout = aiohttp.ClientTimeout(total=SEND_SECONDS)
        async with aiohttp.ClientSession(
            connector=self._outside.connector(),
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        ) as http:
            tasks = [asyncio.create_task(self._serve(http, webhook)) for webhook in mine]
            try:
                yield
            finally:
                await cancel_and_wait(*tasks)

    async def _serve(self, http: aiohttp.ClientSession, webhook: Webhook) -> None:
        while True:
            added, seconds = self._feed.mark(), _STALLED_SECONDS
            try:
                seconds = await self._turn(http, webhook)
            except HoldfastError as error:
                log.warning("webhook.stalled", url=webhook.place, code=error.code, error=error.message)
            except Exception:  # a bug must not silence a webhook for good
                log.exception("webhook.stalled", url=webhook.place)
            if seconds:
                await self._feed.wait_for_change(added, seconds)

    async def _turn(self, http: aiohttp.ClientSession, webhook: Webhook) -> float:
        """Send what there is to send; returns for how many seconds there is nothing to do unless an event comes."""
        cursor, newest = await self._cursors.look(webhook.id)
        if cursor.seq >= newest:
            return _LONGEST_WAIT_SECONDS
        now = await self._cursors.now()
        if now < cursor.next_try_at <= now + LONGEST_WAIT_SECONDS:
            return min(cursor.next_try_at - now, _LONGEST_WAIT_SECONDS)
        claimed = await self._cursors.claim(webhook.id, owner=self._node, now=now, ttl=LEASE_SECONDS)
        if claimed is None:
            return 1.0  # another daemon is at it
        try:
            return await self._send_page(http, webhook, claimed)
        finally:
            await self._cursors.release(webhook.id, owner=self._node)

    async def _send_page(self, http: aiohttp.ClientSession, webhook: Webhook, cursor: WebhookCursor) -> float:
        page = await self._events.page(after=cursor.seq, limit=_PAGE, kinds=webhook.kinds)
        if page.lost(cursor.seq):
            log.error("webhook.lost", url=webhook.place, after=cursor.seq, oldest=page.oldest, why="pruned unsent")
        done = cursor.seq
        for event in page.events:
            trouble = await self._send(http, webhook, event)
            if trouble is not None:
                await self._give_way(webhook, cursor.failures if done == cursor.seq else 0, done, event, trouble)
                return 0.0
            done = event.seq
            await self._advance(webhook, done)
        if page.next > done:
            await self._advance(webhook, page.next)
        return 0.0

    async def _advance(self, webhook: Webhook, seq: int) -> None:
        now = await self._cursors.now()
        await self._cursors.advance(webhook.id, owner=self._node, seq=seq, now=now, ttl=LEASE_SECONDS)

    async def _send(self, http: aiohttp.ClientSession, webhook: Webhook, event: EventRow) -> str | None:
        """One try; what went wrong, or None. Only the status counts: what the receiver says is not read."""
        content = body(event)
        try:
            async with http.post(
                webhook.url,
                data=content,
                headers=headers(webhook, event, content, self._clock()),
                allow_redirects=False,
                proxy=self._outside.proxies.find_for(URL(webhook.url)),
            ) as response:
                status = response.status
        except TimeoutError:
            return f"no answer within {SEND_SECONDS:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return type(error).__name__  # its text may hold the whole URL
        if not 200 <= status < 300:
            return f"status {status}"
        self._metrics.tries.labels(webhook.host, "delivered").inc()
        self._metrics.failures.labels(webhook.host).set(0)
        log.debug("webhook.delivered", url=webhook.place, seq=event.seq, kind=event.kind, session_id=event.session_id)
        return None

    async def _give_way(self, webhook: Webhook, failures: int, done: int, event: EventRow, trouble: str) -> None:
        """A try failed: skip what has been tried for too long, and come back to the rest later."""
        failures += 1
        seconds = retry_seconds(failures)
        self._metrics.tries.labels(webhook.host, "failed").inc()
        self._metrics.failures.labels(webhook.host).set(failures)
        log.warning(
            "webhook.failed",
            url=webhook.place,
            trouble=trouble,
            seq=event.seq,
            kind=event.kind,
            session_id=event.session_id,
            failures=failures,
            next_try_seconds=round(seconds, 1),
        )
        self._watch.look()
        if not self._watch.is_doubtful:
            done = await self._skip_older(webhook, done, self._clock() - self._settings.retry_seconds)
        now = await self._cursors.now()
        await self._cursors.postpone(
            webhook.id, owner=self._node, seq=done, failures=failures, next_try_at=now + seconds, now=now
        )

    async def _skip_older(self, webhook: Webhook, done: int, limit: float) -> int:
        """Past the events that happened before ``limit``: each is named, for it will not be told."""
        while True:
            page = await self._events.page(after=done, limit=_PAGE, kinds=webhook.kinds)
            for event in page.events:
                if event.at >= limit:
                    return done
                done = event.seq
                self._metrics.tries.labels(webhook.host, "skipped").inc()
                log.error(
                    "webhook.skipped",
                    url=webhook.place,
                    seq=event.seq,
                    kind=event.kind,
                    session_id=event.session_id,
                    why=f"not delivered for {self._settings.retry_seconds / 3600:g} h",
                )
            if len(page.events) < _PAGE:
                return done
