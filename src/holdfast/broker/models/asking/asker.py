"""Asks the candidates for a question, one after the other, until one begins to answer."""

import asyncio
import math
import time
from collections.abc import Sequence
from functools import partial

import structlog

from holdfast.broker.accounts import Account, Hold
from holdfast.broker.dialects.lacks import CannotCarry
from holdfast.broker.models.answering.passage import canceled_call, failed_call
from holdfast.broker.models.asking.attempt import Attempts
from holdfast.broker.models.asking.breaker import Breaker
from holdfast.broker.models.asking.candidates import Candidate
from holdfast.broker.models.asking.outcome import Failed, LeftOut, Opened, Unanswered
from holdfast.broker.models.asking.patience import Patience
from holdfast.broker.models.asking.request_plan import ClientRequest, RequestPlan, RequestPlans
from holdfast.broker.models.ledger import Ledger
from holdfast.broker.models.metrics import ModelMetrics
from holdfast.broker.models.providers.catalogue import Catalogue
from holdfast.broker.models.settings import ProxySettings
from holdfast.concurrency import Bounded
from holdfast.vocabulary.turn_events import Kind, TurnEvent

log = structlog.get_logger(__name__)

_MOST_SWITCHES = 10_000


class Asker:
    def __init__(
        self, catalogue: Catalogue, attempts: Attempts, ledger: Ledger, settings: ProxySettings, metrics: ModelMetrics
    ) -> None:
        self._attempts = attempts
        self._ledger = ledger
        self._settings = settings
        self._metrics = metrics
        self._breakers = {one.name: Breaker(settings.breaker) for one in catalogue.providers}
        self._switched = Bounded[tuple[str, str, str | None, str], str](_MOST_SWITCHES)
        for name, breaker in self._breakers.items():
            metrics.breaker_open.labels(name).set_function(partial(_openness, breaker))

    async def ask(
        self, account: Account, ask: ClientRequest, found: Sequence[Candidate], hold: Hold | None
    ) -> Opened | Unanswered:
        """Ask these candidates; the first one is the model that the question names."""
        asked = found[0]
        failures: list[Failed] = []
        plans = RequestPlans(ask, asked)
        left_out: list[LeftOut] = []
        for at, candidate in enumerate(found):
            try:
                plan = await plans.to(candidate)
            except CannotCarry as why:
                log.warning("model.left_out", model=candidate.model.id, thread_id=account.thread_id, why=str(why))
                left_out.append(LeftOut(candidate, str(why)))
                continue
            if not self._breakers[candidate.provider.name].lets_through():
                continue
            later = [one for one in found[at + 1 :] if not self._breakers[one.provider.name].seconds_left()]
            outcome = await self._try(plan, self._patience(plans, plan, later), account, hold)
            if isinstance(outcome, Opened):
                reason = failures[-1].reason if failures else f"{asked.provider.name} is left alone for a while"
                self._tell_switch(account, asked, candidate, reason)
                return outcome
            failures.append(outcome)
        wait = math.ceil(self._breakers[asked.provider.name].seconds_left()) or 1
        return Unanswered(asked, failures, left_out, wait)

    def _patience(self, plans: RequestPlans, plan: RequestPlan, later: Sequence[Candidate]) -> Patience:
        """How long to wait for a candidate: longest for the last one, and for a document, which comes as a whole."""
        longest = self._settings.answer_seconds
        if not plan.streamed or not later:
            return Patience(longest, longest)
        soon = self._settings.first_byte_seconds
        if not all(one.others for one in later):
            return Patience(soon, longest)

        async def is_last() -> bool:
            return not any([await plans.can(one) for one in later])

        return Patience(soon, longest, is_last)

    async def _try(self, plan: RequestPlan, patience: Patience, account: Account, hold: Hold | None) -> Opened | Failed:
        outcome = await self._attempt(plan, patience, account, hold)
        if isinstance(outcome, Failed) and outcome.broke and plan.ask.holds:
            return await self._attempt(plan, patience, account, hold)
        return outcome

    async def _attempt(
        self, plan: RequestPlan, patience: Patience, account: Account, hold: Hold | None
    ) -> Opened | Failed:
        """Ask one candidate once. The cost is written down before, and again if it fails."""
        ask, candidate = plan.ask, plan.candidate
        breaker = self._breakers[candidate.provider.name]
        billed = ask.question.size if ask.question is not None and ask.endpoint.is_billed else None
        call_id = None
        if billed is not None:
            try:
                call_id = await self._ledger.open(account, canceled_call(candidate, billed, 0.0))
            except BaseException:
                breaker.undecided()
                raise
        since = time.monotonic()
        try:
            outcome = await self._attempts.open(plan, patience)
        except asyncio.CancelledError:
            breaker.undecided()
            if billed is not None:
                call = canceled_call(candidate, billed, time.monotonic() - since)
                self._ledger.record_soon(account, call, hold, call_id)
            raise
        if isinstance(outcome, Opened):
            breaker.succeeded()
            outcome.call_id = call_id
            return outcome
        if outcome.is_providers_fault:
            breaker.failed(account.thread_id if outcome.may_be_questions else None)
        else:
            breaker.undecided()
        log.warning("model.failed", model=candidate.model.id, thread_id=account.thread_id, why=outcome.reason)
        if ask.endpoint.is_billed:
            self._ledger.record_soon(account, failed_call(outcome), call_id=call_id)
        return outcome

    def _tell_switch(self, account: Account, asked: Candidate, used: Candidate, reason: str) -> None:
        """Report another model, once per turn, and again if it changes."""
        key = (account.thread_id, account.channel, account.turn_id, asked.model.id)
        if self._switched.get(key, asked.model.id) == used.model.id:
            return
        self._switched[key] = used.model.id
        self._metrics.switches.labels(asked.provider.name).inc()
        log.warning("model.switched", thread_id=account.thread_id, model=asked.model.id, to=used.model.id, why=reason)
        data = {"from": asked.model.id, "to": used.model.id, "reason": reason}
        self._ledger.tell(account, [TurnEvent(Kind.MODEL_SWITCHED, data)])


def _openness(breaker: Breaker) -> float:
    return float(breaker.is_open)
