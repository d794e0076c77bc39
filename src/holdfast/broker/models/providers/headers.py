"""Decides which headers and parameters pass, in either direction: only those that are known to be harmless and useful.

So no key of the sandbox's reaches a provider, and nothing that says whose account it is reaches a sandbox.
"""

from collections.abc import Iterable, Mapping

from holdfast.broker.models.providers.catalogue import ProviderKind
from holdfast.vocabulary.models import channel_tag_of

_ASKED = frozenset(
    {
        "accept",
        "anthropic-beta",
        "anthropic-dangerous-direct-browser-access",
        "anthropic-version",
        "content-type",
        "conversation_id",
        "http-referer",
        "idempotency-key",
        "openai-beta",
        "originator",
        "session_id",
        "user-agent",
        "x-app",
        "x-client-request-id",
        "x-goog-api-client",
        "x-title",
    }
)
_ASKED_PREFIXES = ("x-stainless-",)
_ANSWERED = frozenset(
    {
        "anthropic-fast-output-tokens-remaining",
        "cache-control",
        "content-type",
        "openai-model",
        "openai-processing-ms",
        "openai-version",
        "request-id",
        "retry-after",
        "retry-after-ms",
        "x-request-id",
        "x-should-retry",
    }
)
_ANSWERED_PREFIXES = ("anthropic-ratelimit-", "x-ratelimit-")
_KEY_HEADERS = ("x-api-key", "x-goog-api-key", "api-key")
_KEY_QUERY = frozenset({"key", "api_key", "api-key", "access_token"})
_QUERY = frozenset(
    {"after", "after_id", "alt", "api-version", "before_id", "beta", "limit", "order", "pagesize", "pagetoken"}
)
"""None that leaves the usage out of an answer, as Google's ``fields`` does."""
ANTHROPIC_VERSION = "2023-06-01"


def asked(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers of a sandbox's request that go on to the provider."""
    found = ((name.lower(), value) for name, value in headers)
    return {name: value for name, value in found if name in _ASKED or name.startswith(_ASKED_PREFIXES)}


def answered(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers of a provider's answer that go back."""
    found = ((name.lower(), value) for name, value in headers)
    return {name: value for name, value in found if name in _ANSWERED or name.startswith(_ANSWERED_PREFIXES)}


def query(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in pairs if name.lower() in _QUERY]


def with_key(kind: ProviderKind, key: str | None) -> dict[str, str]:
    """Return the headers that a provider wants of us."""
    own = {"accept-encoding": "identity"}  # we read what passes, and loopback is no reason to compress
    if kind is ProviderKind.ANTHROPIC:
        return own | ({"x-api-key": key} if key else {})
    if kind is ProviderKind.GEMINI:
        return own | ({"x-goog-api-key": key} if key else {})
    return own | ({"authorization": f"Bearer {key}"} if key else {})


def channel_tag(headers: Mapping[str, str], pairs: Iterable[tuple[str, str]]) -> str | None:
    """Return the tag in the placeholder for a key, wherever this program puts its key."""
    candidates = [headers.get(name, "") for name in _KEY_HEADERS]
    candidates.append(headers.get("authorization", "").partition(" ")[2].strip())
    candidates += [value for name, value in pairs if name.lower() in _KEY_QUERY]
    return next((tag for text in candidates if (tag := channel_tag_of(text)) is not None), None)
