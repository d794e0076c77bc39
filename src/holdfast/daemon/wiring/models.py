"""Building the way to models, for ``wiring``: the catalogue of providers, the broker, and the proxy in it."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog
from prometheus_client import CollectorRegistry

from holdfast.broker.accounts import Books
from holdfast.broker.door import ModelBroker
from holdfast.broker.git.environment import PART
from holdfast.broker.git.hosts import GitSettings
from holdfast.broker.git.proxy import GitProxy
from holdfast.broker.models.answering.breaks import Breaks
from holdfast.broker.models.metrics import ModelMetrics
from holdfast.broker.models.prices import Price
from holdfast.broker.models.providers.catalogue import DEMO, WIRES, Catalogue, Offer, Provider, ProviderKind
from holdfast.broker.models.providers.demo import DemoUpstream
from holdfast.broker.models.providers.http import HttpUpstream
from holdfast.broker.models.providers.known import KNOWN
from holdfast.broker.models.proxy import ModelProxy
from holdfast.broker.models.settings import ProxySettings
from holdfast.broker.secrets import EnvKey
from holdfast.daemon.config.config import Config
from holdfast.daemon.config.providers import ModelConfig, ProviderConfig
from holdfast.drivers.base import Driver
from holdfast.network.outside import Outside
from holdfast.vocabulary.models import Model, Wire

log = structlog.get_logger(__name__)

_NO_ISOLATION = "sandboxes of this driver share the host's network, so none can have a port of its own for models"


def make_broker(
    stack: contextlib.AsyncExitStack,
    config: Config,
    driver: Driver,
    catalogue: Catalogue,
    books: Books,
    breaks: Breaks,
    registry: CollectorRegistry,
    outside: Outside,
) -> ModelBroker:
    """Make the broker, with the proxies that answer there, for models and for git servers. ``stack`` closes them."""
    broker = ModelBroker(unavailable=None if driver.capabilities.isolation else _NO_ISOLATION)
    settings = config.section("models", ProxySettings)
    network = HttpUpstream(idle_seconds=settings.idle_seconds, outside=outside)
    models = ModelProxy(catalogue, books, network, DemoUpstream(), settings, ModelMetrics(registry), breaks)
    git = GitProxy(config.section("git", GitSettings), books, outside)
    broker.serve("llm", models)
    broker.serve(PART, git)
    stack.push_async_callback(broker.close)
    stack.push_async_callback(git.close)
    stack.push_async_callback(models.close)  # first, before its callers are hung up on: it has something to tell them
    return broker


def make_catalogue(config: Config, environment: Mapping[str, str] = os.environ) -> Catalogue:
    """Offer what the configuration names, or else the known providers with a key in the environment, or the demo."""
    chosen = config.providers
    if chosen is None:
        variables = {name: one.key_variable for name, one in KNOWN.items()}
        chosen = {name: ProviderConfig() for name, key in variables.items() if key and environment.get(key)}
        if not chosen:
            chosen = {DEMO: ProviderConfig()}
    catalogue = Catalogue([_provider(name, one) for name, one in chosen.items()])
    if catalogue.provider(DEMO) is not None:
        log.warning(
            "models.demo", meaning="answers come from a demo model, which only does as it is told, word by word"
        )
    log.info("models.providers", providers=[one.name for one in catalogue.providers], models=len(catalogue.models))
    return catalogue


def _provider(name: str, config: ProviderConfig) -> Provider:
    known = KNOWN.get(name)
    kind = config.kind or (known.kind if known else ProviderKind.COMPATIBLE)
    wires = config.wires or (known.wires if known and known.kind is kind else WIRES[kind])
    asks = config.asks_for_usage
    usual_key = EnvKey(known.key_variable) if known and known.key_variable else None
    return Provider(
        name=name,
        kind=kind,
        base_url=_base_url(kind, config.base_url or (known.base_url if known else "")),
        key=config.key.source() if config.key else usual_key,
        offers=_offers(name, config.models, known.offers if known else (), wires),
        wires=frozenset(wires),
        asks_for_usage=asks if asks is not None else (known.asks_for_usage if known else True),
    )


def _base_url(kind: ProviderKind, url: str) -> str:
    """Leave out the version where it belongs to the path: some people write it, some do not."""
    url = url.rstrip("/")
    versions = {ProviderKind.ANTHROPIC: ("/v1",), ProviderKind.GEMINI: ("/v1beta", "/v1")}.get(kind, ())
    return next((url.removesuffix(one) for one in versions if url.endswith(one)), url)


def _offers(
    provider: str, models: tuple[ModelConfig, ...], known: Sequence[Offer], wires: tuple[Wire, ...]
) -> list[Offer]:
    """Put those of the configuration first; what it does not say of a known one is as known."""
    by_name = {offer.model.name: offer for offer in known}
    chosen = [_offer(provider, one, by_name.pop(one.name, None), wires) for one in models]
    return [*chosen, *(replace(one, model=replace(one.model, wires=wires)) for one in by_name.values())]


def _offer(provider: str, config: ModelConfig, known: Offer | None, wires: tuple[Wire, ...]) -> Offer:
    base = known.model if known is not None else Model(provider, config.name, wires)
    model = Model(
        provider,
        config.name,
        config.wires or wires,
        config.context_tokens or base.context_tokens,
        config.output_tokens or base.output_tokens,
        base.images if config.images is None else config.images,
    )
    price = Price(**config.price.model_dump()) if config.price is not None else (known.price if known else None)
    return Offer(model, price)
