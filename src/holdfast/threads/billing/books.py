"""Who pays for a call to a model, as ``broker.models.accounts.Books`` wants to know it: threads do.

A sandbox is known by its session, and so is its thread; a call is counted for the turn that runs in its channel.
"""

import asyncio
import contextlib
from collections.abc import Sequence

import structlog

from holdfast.broker.accounts import Account, Call, Hold, HoldResult, Spent
from holdfast.concurrency import Bounded
from holdfast.errors import HoldfastError, StaleRow, TurnNotFound, WrongState
from holdfast.records.threads import Lease
from holdfast.records.usage import Run, UsageRow
from holdfast.sessions.types import Clock
from holdfast.store import Store
from holdfast.store.budget_holds import Asked, Purse
from holdfast.store.usage import day_of
from holdfast.threads.billing.policy import account_of
from holdfast.threads.names import DEFAULT_CHANNEL
from holdfast.threads.settings import AgentDefaults
from holdfast.threads.tools import new_id, retry_write
from holdfast.vocabulary.models import channel_tag
from holdfast.vocabulary.turn_events import TurnEvent

log = structlog.get_logger(__name__)

_RECORD_SECONDS = 15.0
"""How long an answer may wait for its bill to be written."""
_MOST_NAMES = 10_000
_UNHEARD_SECONDS = 3600.0
"""After how long a call that nobody has noted anything of is over: much longer than any provider may be silent."""

_HOLD_SECONDS = 300.0
"""After how long a budget gets back what a daemon held that never came back: several times as long as it takes until
the books are settled once more."""


class ThreadBooks:
    """Made before the sessions are, since the broker needs it."""

    def __init__(self, store: Store, defaults: AgentDefaults, *, clock: Clock, node: str = "") -> None:
        self._store = store
        self._run = Run(node, new_id("run"))
        self._to_release: set[str] = set()
        self._defaults = defaults
        self._clock = clock
        self._names: Bounded[str, str] = Bounded(_MOST_NAMES)
        """Of threads, by id: a bill names the thread also when that is gone."""
        self.leases: dict[str, Lease] = {}
        """Those that this daemon holds, by thread; whoever works on threads keeps it."""

    async def account(self, session_id: str, tag: str | None, /) -> Account | None:
        found = await self._store.threads.at_work(session_id)
        if found is None:
            return None
        row, turns = found
        self._names[row.id] = row.key
        channel = await self._channel(row.id, tag, list(turns))
        return account_of(row, self._defaults, channel, turns.get(channel))

    async def _channel(self, thread_id: str, tag: str | None, running: Sequence[str]) -> str:
        names = running if tag is None else [one for one in (*running, DEFAULT_CHANNEL) if channel_tag(one) == tag]
        if not names and tag is not None:  # rare: an agent that works between the turns of another channel
            channels = await self._store.threads.channels(thread_id)
            names = [one.channel for one in channels if channel_tag(one.channel) == tag] or running
        return names[0] if names else DEFAULT_CHANNEL

    async def spent(self, account: Account, /) -> Spent:
        return Spent(*await self._store.usage.spent(account.thread_id, account.owner, now=self._clock()))

    async def hold(self, account: Account, hold: Hold, /) -> HoldResult:
        asked = Asked(
            id=hold.id,
            thread_id=account.thread_id,
            owner=account.owner,
            usd=hold.usd,
            thread_limit=account.limits.spend_usd,
            owner_limit=account.owner_limits.spend_usd,
            now=self._clock(),
        )
        thread, owner = await self._store.budget_holds.take(asked, run=self._run, ttl=_HOLD_SECONDS)
        return standing(thread, owner, hold.usd)

    async def release(self, hold: Hold, /) -> None:
        self._to_release.add(hold.id)
        await self._release()

    async def _release(self) -> None:
        """Release all that is due; what fails is tried again with the next one, or when the books are settled."""
        ids = frozenset(self._to_release)
        try:
            await self._store.budget_holds.release(ids)
        except HoldfastError as error:
            log.warning("usage.release.failed", holds=len(ids), code=error.code, error=error.message)
        else:
            self._to_release -= ids

    async def begin(self, account: Account, call: Call, /) -> str:
        row = self._row(account, call, new_id("use"))
        await self._store.usage.begin(row, run=self._run)
        return row.id

    async def advance(self, call_id: str, call: Call, /) -> None:
        tokens = call.tokens
        try:
            await self._store.usage.advance(
                call_id,
                output_tokens=tokens.output,
                input_tokens=tokens.input,
                cost_usd=call.cost_usd,
                seconds=call.seconds,
            )
        except HoldfastError as error:  # the next one tells more
            log.warning("usage.advance.failed", call_id=call_id, code=error.code, error=error.message)

    async def settle(self) -> None:
        """Bill what was under way when a daemon was killed: an earlier one of this node, or one that is gone. What they
        held is given back; what this one holds is kept."""
        for row in await self._store.usage.settle(run=self._run, unheard_for=_UNHEARD_SECONDS):
            log.warning(
                "usage.cut", thread_id=row.thread_id, turn_id=row.turn_id, model=row.model, cost_usd=row.cost_usd
            )
        await self._store.budget_holds.renew(run=self._run, ttl=_HOLD_SECONDS)
        if self._to_release:
            await self._release()

    async def record(
        self, account: Account, call: Call, call_id: str | None = None, hold: Hold | None = None, /
    ) -> None:
        row = self._row(account, call, call_id or new_id("use"))
        hold_id = hold.id if hold is not None else None
        try:
            async with asyncio.timeout(_RECORD_SECONDS):
                await retry_write(lambda: self._store.usage.add(row, hold_id=hold_id), asyncio.sleep)
        except (HoldfastError, TimeoutError) as error:  # the line is the bill, then
            log.error("usage.lost", error=str(error), row=row)
            if hold is not None:
                self._to_release.add(hold.id)

    def _row(self, account: Account, call: Call, id: str) -> UsageRow:
        now = self._clock()
        return UsageRow(
            id=id,
            thread_id=account.thread_id,
            thread_key=self._names.get(account.thread_id, ""),
            owner=account.owner,
            channel=account.channel,
            turn_id=account.turn_id,
            provider=call.provider,
            model=call.model,
            status=call.status,
            input_tokens=call.tokens.input,
            output_tokens=call.tokens.output,
            cached_tokens=call.tokens.cached,
            cost_usd=call.cost_usd,
            first_byte_seconds=call.first_byte_seconds,
            seconds=call.seconds,
            error=call.error,
            day=day_of(now),
            at=now,
        )

    async def tell(self, account: Account, events: Sequence[TurnEvent], /) -> None:
        """Tell it in the turn, else in the thread, also if nobody works on that: use between turns is the strangest."""
        lease = self.leases.get(account.thread_id)
        try:
            if lease is not None and account.turn_id is not None:
                # It may have ended meanwhile, or be another daemon's.
                with contextlib.suppress(WrongState, TurnNotFound, StaleRow):
                    await self._store.turns.note(lease, account.turn_id, events=events)
                    return
            await self._store.thread_events.leave(account.thread_id, events, channel=account.channel)
        except HoldfastError as error:
            kinds = [event.kind.value for event in events]
            log.warning("usage.event.dropped", thread_id=account.thread_id, kinds=kinds, why=error.message)


def standing(thread: Purse, owner: Purse, usd: float) -> HoldResult:
    if thread.is_spent:
        return HoldResult.THREAD_SPENT
    if owner.is_spent:
        return HoldResult.OWNER_SPENT
    if not thread.has_room(usd):
        return HoldResult.THREAD_HELD
    return HoldResult.HELD if owner.has_room(usd) else HoldResult.OWNER_HELD
