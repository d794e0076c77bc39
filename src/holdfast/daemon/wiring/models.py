"""Building the way to models, for ``wiring``: the catalogue of providers, the broker, and the proxy in it."""

import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

import structlog
from prometheus_client import CollectorRegistry

from holdfast.broker.accounts import Books
from holdfast.broker.door import ModelBroker
from holdfast.broker.git.environment import PART
from holdfast.broker.git.proxy import GitProxy
from holdfast.broker.models.answering.breaks import Breaks
from holdfast.broker.models.asking.breaker import BreakerSettings
from holdfast.broker.models.metrics import ModelMetrics
from holdfast.broker.models.prices import Price
from holdfast.broker.models.providers.catalogue import DEMO, WIRES, Catalogue, Kind, Offer, Provider
from holdfast.broker.models.providers.demo import DemoUpstream
from holdfast.broker.models.providers.http import HttpUpstream
from holdfast.broker.models.providers.known import KNOWN
from holdfast.broker.models.proxy import ModelProxy
from holdfast.broker.models.settings import ProxySettings
from holdfast.broker.secrets import EnvKey, Key
from holdfast.daemon.config.config import Config
from holdfast.daemon.config.git import git_settings
from holdfast.daemon.config.providers import KeyConfig, ModelConfig, PriceConfig, ProviderConfig
from holdfast.drivers.base import Driver
from holdfast.network.outside import Outside
from holdfast.vocabulary.models import Model, Wire

log = structlog.get_logger(__name__)

_NO_ISOLATION = "sandboxes of this driver share the host's network, so none can have a port of its own for models"


@contextlib.asynccontextmanager
async def running_broker(
    config: Config,
    driver: Driver,
    catalogue: Catalogue,
    books: Books,
    breaks: Breaks,
    registry: CollectorRegistry,
    outside: Outside,
) -> AsyncIterator[ModelBroker]:
    """The way out, and who answers there: models, and git servers."""
    broker = ModelBroker(unavailable=None if driver.capabilities.isolation else _NO_ISOLATION)
    models = make_proxy(config, catalogue, books, breaks, registry, outside)
    git = GitProxy(git_settings(config.git_credentials, config.git_user_name, config.git_user_email), books, outside)
    broker.serve("llm", models)
    broker.serve(PART, git)
    try:
        yield broker
    finally:
        await models.close()  # before its callers are hung up on: it has something to tell them
        await git.close()
        await broker.close()


def make_proxy(
    config: Config,
    catalogue: Catalogue,
    books: Books,
    breaks: Breaks,
    registry: CollectorRegistry,
    outside: Outside,
) -> ModelProxy:
    settings = proxy_settings(config)
    network = HttpUpstream(idle_seconds=settings.idle_seconds, outside=outside)
    return ModelProxy(catalogue, books, network, DemoUpstream(), settings, ModelMetrics(registry), breaks)


def proxy_settings(config: Config) -> ProxySettings:
    return ProxySettings(
        first_byte_seconds=config.model_first_byte_seconds,
        alert_calls_per_minute=config.model_alert_calls_per_minute,
        breaker=BreakerSettings(failures=config.model_breaker_failures, open_seconds=config.model_breaker_seconds),
    )


def make_catalogue(config: Config, environment: Mapping[str, str] = os.environ) -> Catalogue:
    """What the configuration names; without it every known provider that the environment has a key for, or the demo."""
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
    kind = config.kind or (known.kind if known else Kind.COMPATIBLE)
    wires = config.wires or (known.wires if known and known.kind is kind else WIRES[kind])
    asks = config.asks_for_usage
    return Provider(
        name=name,
        kind=kind,
        base_url=_base_url(kind, config.base_url or (known.base_url if known else "")),
        key=_key(config.key, known.key_variable if known else None),
        offers=_offers(name, config.models, known.offers if known else (), wires),
        wires=frozenset(wires),
        asks_for_usage=asks if asks is not None else (known.asks_for_usage if known else True),
    )


def _base_url(kind: Kind, url: str) -> str:
    """Some write the version, some do not; where it belongs to the path, it is not in the base."""
    url = url.rstrip("/")
    versions = {Kind.ANTHROPIC: ("/v1",), Kind.GEMINI: ("/v1beta", "/v1")}.get(kind, ())
    return next((url.removesuffix(one) for one in versions if url.endswith(one)), url)


def _key(config: KeyConfig | None, variable: str | None) -> Key | None:
    if config is None:
        return EnvKey(variable) if variable else None
    return config.source()


def _offers(
    provider: str, models: tuple[ModelConfig, ...], known: Sequence[Offer], wires: tuple[Wire, ...]
) -> list[Offer]:
    """Those of the configuration first; what it does not say of a known one is as known."""
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
    return Offer(model, _price(config.price) if config.price is not None else (known.price if known else None))


def _price(config: PriceConfig) -> Price:
    return Price(config.input, config.output, config.cached, config.cache_write)
