"""Records each call: the bill, a line in the log, the metrics; and raises the alarms that follow from it.

Never what was said, and never a key.
"""

import asyncio
from collections.abc import Coroutine, Sequence

import structlog

from holdfast.broker.accounts import Account, Books, Call, Hold
from holdfast.broker.models.alarms import Alarms
from holdfast.broker.models.limits.gate import Gate, Refusal, has_budget
from holdfast.broker.models.metrics import ModelMetrics
from holdfast.vocabulary.turn_events import Kind, TurnEvent

log = structlog.get_logger(__name__)

PATIENCE_SECONDS = 2.0
"""How long the end of an answer waits for its bill to be written. It is written all the same."""


class Ledger:
    def __init__(self, books: Books, gate: Gate, alarms: Alarms, metrics: ModelMetrics) -> None:
        self._books = books
        self._gate = gate
        self._alarms = alarms
        self._metrics = metrics
        self._tasks: set[asyncio.Task[None]] = set()

    def record_refusal(self, account: Account | None, session_id: str, model_id: str, refusal: Refusal) -> None:
        self._metrics.refused.labels(refusal.code).inc()
        log.warning(
            "model.refused",
            session_id=session_id,
            thread_id=account.thread_id if account else None,
            turn_id=account.turn_id if account else None,
            model=model_id,
            why=refusal.code,
        )
        if account is not None:
            self.tell(account, self._alarms.refused(account, refusal.message))

    def record_start(self, account: Account) -> None:
        self.tell(account, self._alarms.called(account, self._gate.requests(account)))

    def tell(self, account: Account, events: Sequence[TurnEvent]) -> None:
        """Send events to the thread, soon; nobody waits for it."""
        for event in events:
            if event.kind is Kind.USAGE_ALERT:
                log.warning("model.alert", thread_id=account.thread_id, turn_id=account.turn_id, **event.data)
        if events:
            self._spawn(self._books.tell(account, events))

    async def open(self, account: Account, call: Call) -> str | None:
        """Write down a call before the model is asked, in case this daemon is killed meanwhile. What costs
        nothing need not be there. Raises what the books raise: then nobody is asked."""
        return None if call.cost_usd == 0.0 else await self._books.begin(account, call)

    def advance(self, call_id: str, call: Call) -> None:
        """Write down the cost so far, now and then; nobody waits for it."""
        self._spawn(self._books.advance(call_id, call))

    async def record(self, account: Account, call: Call, held: Hold | None = None, call_id: str | None = None) -> None:
        """Record a call, and return when it is written or soon after. The bill replaces what was held for it."""
        await asyncio.wait([self.record_soon(account, call, held, call_id)], timeout=PATIENCE_SECONDS)

    def record_soon(
        self, account: Account, call: Call, held: Hold | None = None, call_id: str | None = None
    ) -> asyncio.Task[None]:
        """Record a call without waiting."""
        self._note(account, call)
        if held is not None and held.is_open:
            held.is_open = False  # it is released with the bill
        else:
            held = None
        return self._spawn(self._write(account, call, held, call_id))

    def release(self, held: Hold) -> None:
        """Release what was held for a call that is not billed; nobody waits for it."""
        if held.is_open:
            held.is_open = False
            self._spawn(self._books.release(held))

    def _note(self, account: Account, call: Call) -> None:
        tokens = call.tokens
        self._gate.count_tokens(account, tokens.input + tokens.output)
        self._metrics.calls.labels(call.provider, str(call.status)).inc()
        for kind, count in (("input", tokens.input), ("cached", tokens.cached), ("output", tokens.output)):
            self._metrics.tokens.labels(call.provider, kind).inc(count)
        if call.cost_usd:
            self._metrics.cost.labels(call.provider).inc(call.cost_usd)
        if call.first_byte_seconds is not None:
            self._metrics.first_byte.labels(call.provider).observe(call.first_byte_seconds)
        log.info(
            "model.call",
            thread_id=account.thread_id,
            turn_id=account.turn_id,
            channel=account.channel,
            owner=account.owner,
            provider=call.provider,
            model=call.model,
            status=call.status,
            input_tokens=tokens.input,
            output_tokens=tokens.output,
            cached_tokens=tokens.cached,
            cost_usd=call.cost_usd,
            first_byte_ms=None if call.first_byte_seconds is None else round(call.first_byte_seconds * 1000),
            ms=round(call.seconds * 1000),
            error=call.error,
        )

    async def _write(self, account: Account, call: Call, held: Hold | None, call_id: str | None) -> None:
        await self._books.record(account, call, call_id, held)
        if call.cost_usd and has_budget(account):
            events = self._alarms.spent(account, await self._books.spent(account), call.cost_usd)
            self.tell(account, events)

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("model.not_recorded", exc_info=error)

    async def close(self, seconds: float = 10.0) -> None:
        """Wait for what is being written."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=seconds)
