"""Providers that need no more than a key: where they are, what the key's variable is called, and some of their models.

Prices are the providers' list prices of autumn 2026, in US dollars per million tokens. Where one asks for more at some
hours, or less for some months, it is the higher price: a budget is to be kept. The configuration can say otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.broker.models.prices import FREE, Price
from holdfast.broker.models.providers.catalogue import DEMO, WIRES, Offer, ProviderKind
from holdfast.vocabulary.models import Model, Wire


@dataclass(frozen=True, slots=True)
class Known:
    kind: ProviderKind
    base_url: str
    key_variable: str | None
    offers: Sequence[Offer]
    wires: tuple[Wire, ...]
    asks_for_usage: bool = True


_M = 1_000_000
_BOTH = (Wire.RESPONSES, Wire.CHAT)


def _known(
    name: str,
    kind: ProviderKind,
    base_url: str,
    key_variable: str,
    models: Mapping[str, tuple[Price, int, int]],
    *,
    wires: tuple[Wire, ...] | None = None,
    asks_for_usage: bool = True,
) -> Known:
    """Make a provider; ``models`` maps a name to price, tokens of context and tokens of output."""
    spoken = wires or WIRES[kind]
    offers = [
        Offer(Model(name, one, spoken, context, output), price) for one, (price, context, output) in models.items()
    ]
    return Known(kind, base_url, key_variable, offers, spoken, asks_for_usage)


KNOWN: Mapping[str, Known] = {
    "anthropic": _known(
        "anthropic",
        ProviderKind.ANTHROPIC,
        "https://api.anthropic.com",
        "ANTHROPIC_API_KEY",
        {
            "claude-sonnet-5-5": (Price(2, 10, 0.1, 2.5), _M, 128_000),
            "claude-opus-5-5": (Price(4, 20, 0.2, 5), _M, 128_000),
            "claude-haiku-5-5": (
                Price(0.1, 0.5, 0.01, 0.125, long_from=100_000, long=Price(0.5, 2.5, 0.05, 0.625)),
                _M,
                128_000,
            ),
            "claude-fable-5-1": (Price(10, 50, 0.25, 12.5), _M, 128_000),
        },
    ),
    "openai": _known(
        "openai",
        ProviderKind.OPENAI,
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        {
            "gpt-6.1-sol": (Price(2, 10, 0.1, 2.5, long_from=272_000, long=Price(4, 15, 0.2, 5)), 1_050_000, 128_000),
            "gpt-6-luna": (
                Price(0.1, 0.5, 0.01, 0.125, long_from=272_000, long=Price(0.2, 0.75, 0.02, 0.25)),
                1_050_000,
                128_000,
            ),
            "gpt-6-astra": (Price(10, 50, 1, 12.5, long_from=272_000, long=Price(20, 75, 2, 25)), 1_050_000, 128_000),
        },
    ),
    "gemini": _known(
        "gemini",
        ProviderKind.GEMINI,
        "https://generativelanguage.googleapis.com",
        "GEMINI_API_KEY",
        {
            "gemini-3.8-flash": (Price(1.5, 7.5, 0.15), 1_048_576, 65_536),
            "gemini-3.1-pro-preview": (
                Price(2, 12, 0.2, long_from=200_000, long=Price(4, 18, 0.4)),
                1_048_576,
                65_536,
            ),
            "gemini-3.5-flash-lite": (Price(0.3, 2.5, 0.03), 1_048_576, 65_536),
        },
    ),
    "openrouter": _known(
        "openrouter",
        ProviderKind.COMPATIBLE,
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        {
            "anthropic/claude-sonnet-5": (Price(2, 10, 0.2, 2.5), _M, 128_000),
            "openai/gpt-6-sol": (Price(2, 10, 0.2, 2.5), 1_050_000, 128_000),
        },
    ),
    "groq": _known(
        "groq",
        ProviderKind.COMPATIBLE,
        "https://api.groq.com/openai/v1",
        "GROQ_API_KEY",
        {
            "openai/gpt-oss-120b": (Price(0.15, 0.6), 131_072, 65_536),
            "llama-3.3-70b-versatile": (Price(0.59, 0.79), 131_072, 32_768),
        },
    ),
    "mistral": _known(
        "mistral",
        ProviderKind.COMPATIBLE,
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        {
            "devstral-medium-latest": (Price(0.4, 2), 262_144, 32_768),
            "mistral-large-latest": (Price(1.36, 4.18), 262_144, 32_768),
            "codestral-latest": (Price(0.3, 0.9), 256_000, 32_768),
        },
        asks_for_usage=False,
    ),
    "deepseek": _known(
        "deepseek",
        ProviderKind.COMPATIBLE,
        "https://api.deepseek.com/v1",
        "DEEPSEEK_API_KEY",
        {
            "deepseek-v4-pro": (Price(1.32, 3.96, 0.044), _M, 64_000),
            "deepseek-flash": (Price(0.3, 1.2, 0.006), _M, 64_000),
        },
    ),
    "xai": _known(
        "xai",
        ProviderKind.COMPATIBLE,
        "https://api.x.ai/v1",
        "XAI_API_KEY",
        {
            "grok-4.5": (Price(2, 6, 0.5, long_from=200_000, long=Price(4, 12, 1)), 500_000, 64_000),
            "grok-4.3": (Price(1.25, 2.5, 0.2, long_from=200_000, long=Price(2.5, 5, 0.4)), _M, 30_000),
        },
        wires=_BOTH,
    ),
    DEMO: Known(
        ProviderKind.DEMO,
        "",
        None,
        [Offer(Model(DEMO, "demo-1", WIRES[ProviderKind.DEMO]), FREE)],
        WIRES[ProviderKind.DEMO],
    ),
}
"""In the order in which they are preferred where the environment has keys for several."""
