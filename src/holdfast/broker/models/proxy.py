"""The model proxy: what answers ``/llm/<provider>/…``.

A question is put to the model that it names and, where that cannot answer, to the thread's other choices, before
anything has been sent back: the agent never sees the first failure. See ``docs/models.md``.
"""

import asyncio
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

import structlog
from aiohttp import web

from holdfast.broker.accounts import Account, Books
from holdfast.broker.dialects.lacks import CannotCarry
from holdfast.broker.door import Visit
from holdfast.broker.models.alarms import Alarms
from holdfast.broker.models.answering.breaks import Breaks
from holdfast.broker.models.answering.passage import Passage, canceled_call, failed_call
from holdfast.broker.models.answering.refusals import give_up, refused
from holdfast.broker.models.asking.attempt import Attempts
from holdfast.broker.models.asking.breaker import Breaker
from holdfast.broker.models.asking.candidates import Candidate, candidates
from holdfast.broker.models.asking.outcome import Failed, Opened
from holdfast.broker.models.asking.patience import Patience
from holdfast.broker.models.asking.request_plan import Ask, Put, Puts
from holdfast.broker.models.intake.intake import Taken, read_question
from holdfast.broker.models.intake.question import BadQuestion, Question
from holdfast.broker.models.intake.room import NoRoom, Room
from holdfast.broker.models.ledger import Ledger
from holdfast.broker.models.limits.gate import Gate, Refusal
from holdfast.broker.models.limits.holds import Hold
from holdfast.broker.models.metrics import ModelMetrics
from holdfast.broker.models.prices import FREE
from holdfast.broker.models.providers import endpoints
from holdfast.broker.models.providers import headers as passing
from holdfast.broker.models.providers.catalogue import Catalogue, Provider, in_order
from holdfast.broker.models.providers.endpoints import Endpoint
from holdfast.broker.models.providers.upstream import Upstream
from holdfast.broker.models.settings import ProxySettings
from holdfast.errors import HoldfastError
from holdfast.vocabulary.models import Model, Wire
from holdfast.vocabulary.turn_events import Kind, TurnEvent

log = structlog.get_logger(__name__)

_CLOSE_SECONDS = 3.0
_MOST_SWITCHES = 10_000


class ModelProxy:
    """A ``Handler`` of the broker. ``network`` and ``demo`` are its to close."""

    def __init__(
        self,
        catalogue: Catalogue,
        books: Books,
        network: Upstream,
        demo: Upstream,
        settings: ProxySettings,
        metrics: ModelMetrics,
        breaks: Breaks | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._books = books
        self._upstreams = (network, demo)
        self._attempts = Attempts(network, demo)
        self._settings = settings
        self._metrics = metrics
        self._gate = Gate()
        self._room = Room()
        self._ledger = Ledger(books, self._gate, Alarms(settings.alert_calls_per_minute), metrics)
        self._breakers = {one.name: Breaker(settings.breaker) for one in catalogue.providers}
        self._switched: OrderedDict[tuple[str, str, str | None, str], str] = OrderedDict()
        self._breaks = breaks or Breaks()
        self._tasks: set[asyncio.Task[object]] = set()
        for name, breaker in self._breakers.items():
            metrics.breaker_open.labels(name).set_function(partial(_openness, breaker))

    async def close(self) -> None:
        """Tell who is being answered that it ends here, and write down what is still to be."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
        await self._ledger.close()
        for upstream in self._upstreams:
            await upstream.close()

    async def __call__(self, visit: Visit) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._metrics.under_way.inc()
        taken = Taken(self._room, self._ledger, visit.session_id)
        try:
            return await self._answer(visit, taken)
        except HoldfastError as error:  # of the books: nothing was asked yet
            log.warning("models.books_failed", session_id=visit.session_id, error=error.message)
            name, _, rest = visit.rest.partition("/")
            wire = endpoints.wire_of(self._catalogue.provider(name), rest)
            return refused(wire, Refusal(503, "unavailable", "Holdfast cannot look into its books; try again", 2))
        finally:
            taken.give_back()
            self._metrics.under_way.dec()
            self._tasks.discard(task)

    # -- what is asked -----------------------------------------------------------------------------------------------

    async def _answer(self, visit: Visit, taken: Taken) -> web.StreamResponse:
        name, _, rest = visit.rest.partition("/")
        provider = self._catalogue.provider(name)
        wire = endpoints.wire_of(provider, rest)
        pairs = list(visit.request.query.items())
        tag = passing.channel_tag(visit.request.headers, pairs)
        account = await self._books.account(visit.session_id, tag)
        endpoint = endpoints.find(provider, visit.request.method, rest) if provider is not None else None
        refusal = self._no_way(account, name, provider, endpoint, f"{visit.request.method} /{rest}")
        if refusal is not None:
            return self._refuse(visit, wire, account, name, refusal)
        assert account is not None and provider is not None and endpoint is not None
        refusal = self._gate.enter(account)
        if refusal is not None:
            return self._refuse(visit, wire, account, name, refusal)
        self._ledger.begun(account)
        try:
            question = await read_question(visit.request, endpoint, taken)
            model_name = question.model if question is not None else ""
        except BadQuestion as error:
            return self._refuse(visit, wire, None, name, Refusal(400, "bad_request", str(error)))
        except NoRoom as error:
            return self._refuse(visit, wire, account, name, Refusal(429, "too_much_at_once", str(error), 1))
        asked = self._asked(provider, endpoint, model_name)
        found = candidates(self._catalogue, account, endpoint, asked)
        refusal = await self._admit(account, endpoint, question, found, taken)
        if refusal is not None:
            return self._refuse(visit, endpoint.wire, account, asked.model.id, refusal)
        headers = passing.asked(visit.request.headers.items())
        query = passing.query(pairs)
        ask = Ask(endpoint, visit.request.method, question, headers, query, account.retry_broken_streams)
        await self._breaks.asked(visit.session_id, account, question)
        return await self._ask_around(visit, account, ask, found, taken.hold)

    async def _admit(
        self,
        account: Account,
        endpoint: Endpoint,
        question: Question | None,
        found: Sequence[Candidate],
        taken: Taken,
    ) -> Refusal | None:
        most = max(one.most_usd(question) for one in found) if question is not None and endpoint.is_billed else 0.0
        model_id = found[0].model.id if question is not None else None
        price = found[0].price if endpoint.is_billed else FREE
        taken.hold = Hold(f"hld_{secrets.token_hex(12)}", most)
        return await self._gate.admit(account, model_id, price, self._books, taken.hold)

    def _no_way(
        self, account: Account | None, name: str, provider: Provider | None, endpoint: Endpoint | None, what: str
    ) -> Refusal | None:
        if account is None:
            return Refusal(403, "no_thread", "this sandbox belongs to no thread, so nobody pays for a model here")
        if provider is None:
            known = ", ".join(one.name for one in self._catalogue.providers) or "none"
            return Refusal(404, "no_provider", f"there is no provider {name!r} here; there is {known}")
        if endpoint is None:
            return Refusal(404, "no_endpoint", f"{what} of {name} is not offered here; docs/models.md lists what is")
        return None

    def _asked(self, provider: Provider, endpoint: Endpoint, name: str) -> Candidate:
        model = self._catalogue.model(f"{provider.name}/{name}") or Model(provider.name, name, (endpoint.wire,))
        spoken = endpoint.wire in provider.wires
        return Candidate(provider, model, self._catalogue.price(model), () if spoken else in_order(provider))

    def _refuse(
        self, visit: Visit, wire: Wire, account: Account | None, model_id: str, refusal: Refusal
    ) -> web.StreamResponse:
        self._ledger.refused(account, visit.session_id, model_id, refusal)
        return refused(wire, refusal)

    # -- who answers -------------------------------------------------------------------------------------------------

    async def _ask_around(
        self, visit: Visit, account: Account, ask: Ask, found: Sequence[Candidate], hold: Hold | None
    ) -> web.StreamResponse:
        asked = found[0]
        failures: list[Failed] = []
        puts = Puts(ask, asked)
        left_out: list[str] = []
        for at, candidate in enumerate(found):
            try:
                put = await puts.to(candidate)
            except CannotCarry as why:
                log.warning("model.left_out", model=candidate.model.id, thread_id=account.thread_id, why=str(why))
                left_out.append(f"{candidate.model.id} ({why})")
                continue
            if not self._breakers[candidate.provider.name].lets_through():
                continue
            later = [one for one in found[at + 1 :] if not self._breakers[one.provider.name].seconds_left()]
            outcome = await self._try(put, self._patience(puts, put, later), account, hold)
            if isinstance(outcome, Opened):
                reason = failures[-1].reason if failures else f"{asked.provider.name} is left alone for a while"
                self._tell_switch(account, asked, candidate, reason)
                return await self._pass_on(visit, outcome, ask, account, hold)
            failures.append(outcome)
        wait = math.ceil(self._breakers[asked.provider.name].seconds_left()) or 1
        return give_up(ask.endpoint.wire, asked, failures, left_out, wait)

    def _patience(self, puts: Puts, put: Put, later: Sequence[Candidate]) -> Patience:
        """There is no use in giving up on the only one; and a document begins only when all of it is there."""
        longest = self._settings.answer_seconds
        if not put.streamed or not later:
            return Patience(longest, longest)
        soon = self._settings.first_byte_seconds
        if not all(one.others for one in later):
            return Patience(soon, longest)

        async def is_last() -> bool:
            return not any([await puts.can(one) for one in later])

        return Patience(soon, longest, is_last)

    async def _try(self, put: Put, patience: Patience, account: Account, hold: Hold | None) -> Opened | Failed:
        ask, candidate = put.ask, put.candidate
        breaker = self._breakers[candidate.provider.name]
        billed = ask.question.size if ask.question is not None and ask.endpoint.is_billed else None
        for may_repeat in (ask.holds, False):
            call_id = None
            if billed is not None:
                try:
                    call_id = await self._ledger.open(account, canceled_call(candidate, billed, 0.0))
                except BaseException:
                    breaker.undecided()
                    raise
            since = time.monotonic()
            try:
                outcome = await self._attempts.open(put, patience)
            except asyncio.CancelledError:
                breaker.undecided()
                if billed is not None:
                    call = canceled_call(candidate, billed, time.monotonic() - since)
                    self._ledger.cut_off(account, call, hold, call_id)
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
                self._ledger.cut_off(account, failed_call(outcome), call_id=call_id)
            if not (may_repeat and outcome.broke):
                break
        return outcome

    async def _pass_on(
        self, visit: Visit, opened: Opened, ask: Ask, account: Account, hold: Hold | None
    ) -> web.StreamResponse:
        on_break = partial(self._breaks.broke, visit.session_id, account, ask.question)
        passage = Passage(visit.request, opened, ask.endpoint, account, self._ledger, hold, on_break)
        try:
            return await passage.run()
        finally:
            if passage.error is not None and passage.error != "canceled" and opened.reply.status < 400:
                self._metrics.broken.labels(opened.candidate.provider.name).inc()

    def _tell_switch(self, account: Account, asked: Candidate, used: Candidate, reason: str) -> None:
        """Once per turn, and again if it is another one then."""
        key = (account.thread_id, account.channel, account.turn_id, asked.model.id)
        if self._switched.get(key, asked.model.id) == used.model.id:
            return
        self._switched[key] = used.model.id
        self._switched.move_to_end(key)
        if len(self._switched) > _MOST_SWITCHES:
            self._switched.popitem(last=False)
        self._metrics.switches.labels(asked.provider.name).inc()
        log.warning("model.switched", thread_id=account.thread_id, model=asked.model.id, to=used.model.id, why=reason)
        data = {"from": asked.model.id, "to": used.model.id, "reason": reason}
        self._ledger.tell(account, [TurnEvent(Kind.MODEL_SWITCHED, data)])


def _openness(breaker: Breaker) -> float:
    return float(breaker.is_open)
