"""Model providers: where one is, how it is spoken to, where its key comes from, and which models it has."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.broker.models.prices import Price
from holdfast.broker.secrets import Key
from holdfast.vocabulary.models import Model, Wire

_DATE = re.compile(r"[-@]([0-9]{8}|[0-9]{4}-[0-9]{2}-[0-9]{2}|latest)$")
"""Of a model as it was on some day: it costs what the model costs."""

DEMO = "demo"
"""The provider that is this daemon itself."""


class ProviderKind(StrEnum):
    """The API that a provider has."""

    OPENAI = "openai"
    COMPATIBLE = "openai-compatible"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    DEMO = "demo"


WIRES: Mapping[ProviderKind, tuple[Wire, ...]] = {
    ProviderKind.OPENAI: (Wire.RESPONSES, Wire.CHAT),
    ProviderKind.COMPATIBLE: (Wire.CHAT,),
    ProviderKind.ANTHROPIC: (Wire.MESSAGES,),
    ProviderKind.GEMINI: (Wire.GEMINI,),
    ProviderKind.DEMO: (Wire.CHAT, Wire.RESPONSES, Wire.MESSAGES, Wire.GEMINI),
}
"""In which dialects its models are spoken to, unless one says otherwise. The best comes first."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A model and its price; None if nobody has said it."""

    model: Model
    price: Price | None = None


@dataclass(frozen=True, slots=True)
class Provider:
    name: str
    kind: ProviderKind
    base_url: str
    """Without a slash at the end. Of the OpenAI kinds with the version in it, of the others without."""
    key: Key | None
    offers: Sequence[Offer] = ()
    wires: frozenset[Wire] = field(default_factory=frozenset)
    """What may be asked for there at all."""
    asks_for_usage: bool = True
    """Whether a streamed chat completion must be told to count; some providers always do, and refuse to be told."""

    def offer(self, name: str) -> Offer | None:
        return next((offer for offer in self.offers if offer.model.name == name), None)


class Catalogue:
    """All providers of this daemon, in the order of their configuration, which is also the order of their models."""

    def __init__(self, providers: Sequence[Provider]) -> None:
        self._providers = {provider.name: provider for provider in providers}

    @property
    def providers(self) -> Sequence[Provider]:
        return list(self._providers.values())

    @property
    def models(self) -> Sequence[Model]:
        """The models that agents are told of. A provider may have more, which can be asked for, too."""
        return [offer.model for provider in self._providers.values() for offer in provider.offers]

    def provider(self, name: str) -> Provider | None:
        return self._providers.get(name)

    def model(self, model_id: str) -> Model | None:
        """Return the model with this id, listed or not; None if there is no such provider."""
        provider_name, _, name = model_id.partition("/")
        provider = self._providers.get(provider_name)
        if provider is None or not name:
            return None
        offer = provider.offer(name)
        return offer.model if offer is not None else Model(provider.name, name, in_order(provider))

    def price(self, model: Model) -> Price | None:
        provider = self._providers.get(model.provider)
        if provider is None:
            return None
        offer = provider.offer(model.name) or provider.offer(_DATE.sub("", model.name))
        return offer.price if offer is not None else None


def in_order(provider: Provider) -> tuple[Wire, ...]:
    """Return the provider's dialects, the best first."""
    return tuple(wire for wire in (Wire.RESPONSES, Wire.CHAT, Wire.MESSAGES, Wire.GEMINI) if wire in provider.wires)
