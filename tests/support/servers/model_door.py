"""The way to models as a program in a sandbox meets it, without a sandbox: the broker's port, on this host's loopback.

async with model_server() as server, model_door(server, Wire.CHAT) as door:
    await door.ask("say hello")                 put to provider ``one``; ``two`` is there, too
    door.books.calls, door.books.told           what was written down
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import aiohttp
from prometheus_client import CollectorRegistry

from holdfast.broker.accounts import Account, Books, Call, Hold, HoldResult, Spent
from holdfast.broker.door import LISTENER, ModelBroker
from holdfast.broker.guard import Deadlines
from holdfast.broker.models.metrics import ModelMetrics
from holdfast.broker.models.prices import Price
from holdfast.broker.models.providers.catalogue import Catalogue, Offer, Provider, ProviderKind
from holdfast.broker.models.providers.demo import DemoUpstream
from holdfast.broker.models.providers.http import HttpUpstream
from holdfast.broker.models.proxy import ModelProxy
from holdfast.broker.models.settings import ProxySettings
from holdfast.broker.secrets import Key
from holdfast.link.link import Link
from holdfast.network.outside import Outside
from holdfast.records.limits import Limits
from holdfast.records.network import NetworkPolicy
from holdfast.records.spec import SessionSpec
from holdfast.store.budget_holds import Purse
from holdfast.threads.billing.books import standing
from holdfast.vocabulary.models import Model, Wire, placeholder
from holdfast.vocabulary.turn_events import TurnEvent
from support.servers.model_server import ModelServer

SESSION = "ses_1"
SPEC = SessionSpec(Limits(cpus=1, memory_mb=64, pids=16, disk_mb=16), NetworkPolicy.NONE, False, {}, kept=True)
ACCOUNT = Account("thr_1", "key_1", "web:default", "trn_1", preferences=("two/m2",))
KINDS = {
    Wire.CHAT: ProviderKind.OPENAI,
    Wire.RESPONSES: ProviderKind.OPENAI,
    Wire.MESSAGES: ProviderKind.ANTHROPIC,
    Wire.GEMINI: ProviderKind.GEMINI,
}
PRICE = Price(1.0, 10.0)


class FixedKey(Key):
    """A key that is always the same."""

    def __init__(self, key: str) -> None:
        self._key = key

    async def get(self) -> str:
        return self._key


class MemoryBooks:
    """Of one thread."""

    def __init__(self, account: Account | None = ACCOUNT) -> None:
        self.the_account = account
        self.tags: list[str | None] = []
        self.calls: list[Call] = []
        self.begun: list[Call] = []
        self.open: dict[str, Call] = {}
        """Those that have begun and not ended, as last told."""
        self.told: list[TurnEvent] = []
        self.spent_before = 0.0
        self.held: dict[str, float] = {}

    async def account(self, session_id: str, channel_tag: str | None, /) -> Account | None:
        self.tags.append(channel_tag)
        return self.the_account if session_id == SESSION else None

    async def spent(self, _account: Account, /) -> Spent:
        total = self.spent_before + sum(call.cost_usd or 0.0 for call in self.calls)
        return Spent(total, total)

    async def hold(self, account: Account, hold: Hold, /) -> HoldResult:
        spent, held = await self.spent(account), sum(self.held.values())
        thread = Purse(account.limits.spend_usd, spent.thread_usd, held)
        owner = Purse(account.owner_limits.spend_usd, spent.owner_usd, held)
        found = standing(thread, owner, hold.usd)
        if found is HoldResult.HELD:
            self.held[hold.id] = hold.usd
        return found

    async def release(self, hold: Hold, /) -> None:
        self.held.pop(hold.id, None)

    async def begin(self, _account: Account, call: Call, /) -> str:
        self.begun.append(call)
        self.open[f"use_{len(self.begun)}"] = call
        return f"use_{len(self.begun)}"

    async def advance(self, call_id: str, call: Call, /) -> None:
        self.open[call_id] = call

    async def record(
        self, _account: Account, call: Call, call_id: str | None = None, hold: Hold | None = None, /
    ) -> None:
        if call_id is not None:
            del self.open[call_id]
        if hold is not None:
            self.held.pop(hold.id, None)
        self.calls.append(call)

    async def tell(self, _account: Account, events: Sequence[TurnEvent], /) -> None:
        self.told += events


@dataclass(frozen=True)
class Said:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Door:
    url: str
    wire: Wire
    books: MemoryBooks
    proxy: ModelProxy
    broker: ModelBroker
    registry: CollectorRegistry
    client: aiohttp.ClientSession
    keys: Mapping[str, str] = field(default_factory=dict)

    def request(self, text: str, *, model: str = "m1", stream: bool = True) -> tuple[str, Mapping[str, object]]:
        """What follows the provider's address, and the body."""
        messages = [{"role": "user", "content": text}]
        match self.wire:
            case Wire.CHAT:
                return "/v1/chat/completions", {"model": model, "messages": messages, "stream": stream}
            case Wire.RESPONSES:
                return "/v1/responses", {"model": model, "input": messages, "stream": stream}
            case Wire.MESSAGES:
                return "/v1/messages", {"model": model, "max_tokens": 100, "messages": messages, "stream": stream}
            case Wire.GEMINI:
                verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
                return f"/v1beta/models/{model}:{verb}", {"contents": [{"role": "user", "parts": [{"text": text}]}]}

    async def ask(
        self, text: str = "say hello", *, stream: bool = True, provider: str = "one", model: str = "m1"
    ) -> Said:
        path, body = self.request(text, stream=stream, model=model)
        return await self.send("POST", f"/llm/{provider}{path}", json=body)

    async def send(
        self, method: str, path: str, *, json: object = None, data: bytes | None = None, headers: Mapping[str, str] = {}
    ) -> Said:
        async with asyncio.timeout(30):
            async with self.client.request(method, self.url + path, json=json, data=data, headers=headers) as response:
                return Said(response.status, _lower(response.headers), await response.read())

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


def _lower(headers: Mapping[str, str]) -> Mapping[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def provider_at(server: ModelServer, name: str, wire: Wire, model: str) -> Provider:
    kind = KINDS[wire]
    url = server.base_url(name) + ("/v1" if kind is ProviderKind.OPENAI else "")
    wires = frozenset({wire})
    offer = Offer(Model(name, model, (wire,)), PRICE)
    return Provider(name, kind, url, FixedKey(key_of(name)), [offer], wires)


def key_of(provider: str) -> str:
    return f"sk-the-real-key-of-{provider}"


@contextlib.asynccontextmanager
async def model_door(
    server: ModelServer,
    wire: Wire = Wire.CHAT,
    *,
    books: Books | None = None,
    settings: ProxySettings | None = None,
    more: Sequence[Provider] = (),
    deadlines: Deadlines | None = None,
) -> AsyncIterator[Door]:
    books = books or MemoryBooks()
    settings = settings or ProxySettings()
    registry = CollectorRegistry()
    providers = [provider_at(server, "one", wire, "m1"), provider_at(server, "two", wire, "m2"), *more]
    network = HttpUpstream(idle_seconds=settings.idle_seconds, outside=Outside())
    proxy = ModelProxy(Catalogue(providers), books, network, DemoUpstream(), settings, ModelMetrics(registry))
    broker = ModelBroker(deadlines=deadlines)
    broker.serve("llm", proxy)
    link = Link(SESSION, "token")
    broker.attach(link, SPEC)
    make = link.protocol_for(LISTENER)
    assert make is not None
    listening = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)  # type: ignore[arg-type]  # it is never None here
    port = listening.sockets[0].getsockname()[1]
    key = {"authorization": f"Bearer {placeholder('webdefault')}"}
    try:
        async with aiohttp.ClientSession(headers=key) as client:
            yield Door(f"http://127.0.0.1:{port}", wire, cast(MemoryBooks, books), proxy, broker, registry, client)
    finally:
        listening.close()
        await proxy.close()
        await broker.close()
