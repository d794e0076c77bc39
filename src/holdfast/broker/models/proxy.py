"""The model proxy: what answers ``/llm/<provider>/…``.

A question is put to the model that it names and, where that cannot answer, to the thread's other choices, before
anything has been sent back: the agent never sees the first failure. See ``docs/models.md``.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import structlog
from aiohttp import web

from holdfast.broker.accounts import Account, Books, Hold
from holdfast.broker.door import Visit
from holdfast.broker.models.alarms import Alarms
from holdfast.broker.models.answering.breaks import Breaks
from holdfast.broker.models.answering.passage import Passage
from holdfast.broker.models.answering.refusals import give_up, refused
from holdfast.broker.models.asking.asker import Asker
from holdfast.broker.models.asking.attempt import Attempts
from holdfast.broker.models.asking.candidates import Candidate, candidates
from holdfast.broker.models.asking.outcome import Opened, Unanswered
from holdfast.broker.models.asking.request_plan import ClientRequest
from holdfast.broker.models.intake.intake import Reservation, read_question
from holdfast.broker.models.intake.question import BadQuestion, Question
from holdfast.broker.models.intake.room import NoRoom, QuestionMemory
from holdfast.broker.models.ledger import Ledger
from holdfast.broker.models.limits.gate import Gate, Refusal
from holdfast.broker.models.metrics import ModelMetrics
from holdfast.broker.models.prices import FREE
from holdfast.broker.models.providers import endpoints
from holdfast.broker.models.providers import headers as passing
from holdfast.broker.models.providers.catalogue import Catalogue, Provider, in_order
from holdfast.broker.models.providers.endpoints import Endpoint
from holdfast.broker.models.providers.upstream import Upstream
from holdfast.broker.models.settings import ProxySettings
from holdfast.errors import HoldfastError
from holdfast.vocabulary.models import Model

log = structlog.get_logger(__name__)

_CLOSE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class _Entered:
    """A request that may be read: who pays for it, and what it wants."""

    account: Account
    provider: Provider
    endpoint: Endpoint


@dataclass(eq=False)
class _Refused(Exception):
    """The request is refused. Without an account it does not count among the thread's refusals."""

    refusal: Refusal
    account: Account | None
    model_id: str


class ModelProxy:
    """A ``Handler`` of the broker. It closes ``network`` and ``demo``."""

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
        self._metrics = metrics
        self._gate = Gate()
        self._room = QuestionMemory()
        self._ledger = Ledger(books, self._gate, Alarms(settings.alert_calls_per_minute), metrics)
        self._asker = Asker(catalogue, Attempts(network, demo), self._ledger, settings, metrics)
        self._breaks = breaks or Breaks()
        self._tasks: set[asyncio.Task[object]] = set()

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
        """Answer a request: limits, intake, asking, answering; the ledger records the result."""
        name, _, rest = visit.rest.partition("/")
        wire = endpoints.wire_of(self._catalogue.provider(name), rest)
        with self._under_way(visit.session_id) as taken:
            try:
                entered = await self._enter(visit, name, rest)
                question = await self._read(visit, entered, taken)
                wire = entered.endpoint.wire
                found = await self._admit(entered, question, taken)
                outcome = await self._ask(visit, entered, question, found, taken.hold)
                if isinstance(outcome, Unanswered):
                    return give_up(wire, outcome)
                return await self._pass_on(visit, outcome, entered.account, taken.hold)
            except _Refused as error:
                self._ledger.record_refusal(error.account, visit.session_id, error.model_id, error.refusal)
                return refused(wire, error.refusal)
            except HoldfastError as error:  # of the books: nothing was asked yet
                log.warning("models.books_failed", session_id=visit.session_id, error=error.message)
                return refused(wire, Refusal(503, "unavailable", "Holdfast cannot look into its books; try again", 2))

    @contextlib.contextmanager
    def _under_way(self, session_id: str) -> Iterator[Reservation]:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._metrics.under_way.inc()
        taken = Reservation(self._room, self._ledger, session_id)
        try:
            yield taken
        finally:
            taken.give_back()
            self._metrics.under_way.dec()
            self._tasks.discard(task)

    # -- limits and intake -------------------------------------------------------------------------------------------

    async def _enter(self, visit: Visit, name: str, rest: str) -> _Entered:
        """Check the request before anything of the question is read. Raises ``_Refused``."""
        tag = passing.channel_tag(visit.request.headers, visit.request.query.items())
        account = await self._books.account(visit.session_id, tag)
        provider = self._catalogue.provider(name)
        endpoint = endpoints.find(provider, visit.request.method, rest) if provider is not None else None
        if account is None:
            message = "this sandbox belongs to no thread, so nobody pays for a model here"
            raise _Refused(Refusal(403, "no_thread", message), account, name)
        if provider is None:
            known = ", ".join(one.name for one in self._catalogue.providers) or "none"
            message = f"there is no provider {name!r} here; there is {known}"
            raise _Refused(Refusal(404, "no_provider", message), account, name)
        if endpoint is None:
            message = f"{visit.request.method} /{rest} of {name} is not offered here; docs/models.md lists what is"
            raise _Refused(Refusal(404, "no_endpoint", message), account, name)
        refusal = self._gate.enter(account)
        if refusal is not None:
            raise _Refused(refusal, account, name)
        self._ledger.record_start(account)
        return _Entered(account, provider, endpoint)

    async def _read(self, visit: Visit, entered: _Entered, taken: Reservation) -> Question | None:
        """Read the question; None if the endpoint has no body. Raises ``_Refused``."""
        name = entered.provider.name
        try:
            return await read_question(visit.request, entered.endpoint, taken)
        except BadQuestion as error:
            raise _Refused(Refusal(400, "bad_request", str(error)), None, name) from None
        except NoRoom as error:
            raise _Refused(Refusal(429, "too_much_at_once", str(error), 1), entered.account, name) from None

    async def _admit(self, entered: _Entered, question: Question | None, taken: Reservation) -> Sequence[Candidate]:
        """Find the candidates, the asked one first, and hold what the answer may cost. Raises ``_Refused``."""
        account, endpoint = entered.account, entered.endpoint
        asked = self._asked(entered, question)
        found = candidates(self._catalogue, account, endpoint, asked)
        most = max(one.most_usd(question) for one in found) if question is not None and endpoint.is_billed else 0.0
        model_id = asked.model.id if question is not None else None
        price = asked.price if endpoint.is_billed else FREE
        taken.hold = Hold(f"hld_{secrets.token_hex(12)}", most)
        refusal = await self._gate.admit(account, model_id, price, self._books, taken.hold)
        if refusal is not None:
            raise _Refused(refusal, account, asked.model.id)
        return found

    def _asked(self, entered: _Entered, question: Question | None) -> Candidate:
        provider, wire = entered.provider, entered.endpoint.wire
        name = question.model if question is not None else ""
        model = self._catalogue.model(f"{provider.name}/{name}") or Model(provider.name, name, (wire,))
        others = () if wire in provider.wires else in_order(provider)
        return Candidate(provider, model, self._catalogue.price(model), others)

    # -- asking and answering ----------------------------------------------------------------------------------------

    async def _ask(
        self,
        visit: Visit,
        entered: _Entered,
        question: Question | None,
        found: Sequence[Candidate],
        hold: Hold | None,
    ) -> Opened | Unanswered:
        account, request = entered.account, visit.request
        headers, query = passing.asked(request.headers.items()), passing.query(request.query.items())
        ask = ClientRequest(entered.endpoint, request.method, question, headers, query, account.retry_broken_streams)
        await self._breaks.note_question(visit.session_id, account, question)
        return await self._asker.ask(account, ask, found, hold)

    async def _pass_on(self, visit: Visit, opened: Opened, account: Account, hold: Hold | None) -> web.StreamResponse:
        ask = opened.plan.ask
        on_break = partial(self._breaks.note_break, visit.session_id, account, ask.question)
        passage = Passage(visit.request, opened, ask.endpoint, account, self._ledger, hold, on_break)
        try:
            return await passage.run()
        finally:
            if passage.is_broken:
                self._metrics.broken.labels(opened.candidate.provider.name).inc()
