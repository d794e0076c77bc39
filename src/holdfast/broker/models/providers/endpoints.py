"""The endpoints of providers that may be used. Nothing else is forwarded."""

import re
from dataclasses import dataclass
from enum import Enum
from urllib.parse import quote, unquote

from holdfast.broker.models.providers.catalogue import Provider, ProviderKind, in_order
from holdfast.vocabulary.models import Wire


class Operation(Enum):
    ANSWER = "answer"
    COUNT = "count"
    EMBED = "embed"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class Endpoint:
    operation: Operation
    wire: Wire
    path: str
    """Without the version; of Gemini's verbs, with ``{}`` where the model stands."""
    version: str
    model: str | None = None
    """Of those that have it in their path."""

    @property
    def is_billed(self) -> bool:
        return self.operation in (Operation.ANSWER, Operation.EMBED)

    @property
    def may_be_translated(self) -> bool:
        """Whether it means the same in every dialect, as answers do; counts, vectors and compacted texts do not."""
        return self.operation is Operation.ANSWER and self.path != _COMPACT

    def streams_by_path(self) -> bool:
        return self.path.endswith(":streamGenerateContent")

    def path_at(self, provider: Provider, model: str | None) -> str:
        """Return the path that follows the provider's base URL."""
        path = self.path.format(quote(model, safe="")) if self.model is not None and model is not None else self.path
        return (
            f"/{path}" if provider.kind in (ProviderKind.OPENAI, ProviderKind.COMPATIBLE) else f"/{self.version}/{path}"
        )


_COMPACT = "responses/compact"
_FIXED = {
    "chat/completions": (Operation.ANSWER, Wire.CHAT),
    "responses": (Operation.ANSWER, Wire.RESPONSES),
    _COMPACT: (Operation.ANSWER, Wire.RESPONSES),
    "embeddings": (Operation.EMBED, Wire.CHAT),
    "messages": (Operation.ANSWER, Wire.MESSAGES),
    "messages/count_tokens": (Operation.COUNT, Wire.MESSAGES),
}
_VERBS = {
    "generateContent": Operation.ANSWER,
    "streamGenerateContent": Operation.ANSWER,
    "countTokens": Operation.COUNT,
    "embedContent": Operation.EMBED,
    "batchEmbedContents": Operation.EMBED,
}
_VERSION = re.compile(r"(v1beta|v1alpha|v1)/")
_VERB = re.compile(r"models/([^/:]+):(\w+)")
_LIST = re.compile(r"models(/[A-Za-z0-9][A-Za-z0-9._:@-]*)?")  # and no ``..``, which leads elsewhere


def find(provider: Provider, method: str, rest: str) -> Endpoint | None:
    """Find an endpoint by what follows the provider's name in the path, still quoted. Answers exist in any dialect."""
    found = _VERSION.match(rest)
    version = found[1] if found else ("v1beta" if Wire.GEMINI in provider.wires and method == "POST" else "v1")
    path = rest[found.end() :] if found else rest
    endpoint = _posted(path, version) if method == "POST" else _got(provider, method, path, version)
    if endpoint is None or not provider.wires:
        return None
    return endpoint if endpoint.wire in provider.wires or endpoint.may_be_translated else None


def answering(wire: Wire, model: str, *, streamed: bool) -> Endpoint:
    """Return the endpoint at which a model is asked in this dialect."""
    if wire is Wire.GEMINI:
        verb = "streamGenerateContent" if streamed else "generateContent"
        return Endpoint(Operation.ANSWER, wire, f"models/{{}}:{verb}", "v1beta", model)
    path = {Wire.CHAT: "chat/completions", Wire.RESPONSES: "responses", Wire.MESSAGES: "messages"}[wire]
    return Endpoint(Operation.ANSWER, wire, path, "v1")


def _posted(path: str, version: str) -> Endpoint | None:
    if path in _FIXED:
        return Endpoint(*_FIXED[path], path, version)
    found = _VERB.fullmatch(path)
    if found is None or found[2] not in _VERBS:
        return None
    return Endpoint(_VERBS[found[2]], Wire.GEMINI, f"models/{{}}:{found[2]}", version, unquote(found[1]))


def _got(provider: Provider, method: str, path: str, version: str) -> Endpoint | None:
    if method != "GET" or _LIST.fullmatch(path) is None or not provider.wires:
        return None
    return Endpoint(Operation.LIST, in_order(provider)[0], path, version)


def wire_of(provider: Provider | None, rest: str) -> Wire:
    """Return the dialect for refusing a path that is no endpoint, or belongs to no provider."""
    path = _VERSION.sub("", rest, count=1)
    if path in _FIXED:
        return _FIXED[path][1]
    if _VERB.match(path):
        return Wire.GEMINI
    return in_order(provider)[0] if provider is not None and provider.wires else Wire.CHAT
