"""A request to the demo model, and its reply: which dialect it is in, by its path, and how it is sent."""

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from holdfast.broker.demo import failures, script, voice
from holdfast.broker.demo.actions import Fail, Wait, written_tokens
from holdfast.broker.demo.conversation import Conversation, read, read_tokens
from holdfast.broker.demo.voice import Answer, Piece
from holdfast.broker.dialects.answer import Head
from holdfast.broker.dialects.json import Json
from holdfast.vocabulary.models import Model, Wire

PROVIDER = "demo"
MODEL = Model(PROVIDER, "demo-1", tuple(Wire))

_GEMINI_PATH = re.compile(r"/models/(?P<model>[^/:]+):(?P<verb>\w+)$")
_JSON = {"content-type": "application/json"}
_EVENTS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


@dataclass(frozen=True, slots=True)
class DemoReply:
    """What is to be sent. ``pieces`` can be read once."""

    status: int
    pieces: Iterator[Piece]
    headers: Mapping[str, str] = field(default_factory=lambda: _JSON)


def wire_of(path: str) -> Wire | None:
    """Return the dialect of a request to this path; None if it is no question to a model."""
    path = path.partition("?")[0]
    if path.endswith("/chat/completions"):
        return Wire.CHAT
    if path.endswith("/responses"):
        return Wire.RESPONSES
    if path.endswith(("/messages", "/messages/count_tokens")):
        return Wire.MESSAGES
    return Wire.GEMINI if _GEMINI_PATH.search(path) else None


def reply(method: str, path: str, body: bytes) -> DemoReply:
    """Answer a request. ``path`` follows the provider's address, and has a query: ``/v1/chat/completions?…``."""
    bare, _, query = path.partition("?")
    if method in ("GET", "HEAD") and re.search(r"/models(/[^/]+)?$", bare):
        return _document(_models(bare))
    wire = wire_of(bare)
    if wire is None or method != "POST":
        return failure(Wire.CHAT, 404, f"the demo model knows no {method} {bare}")
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        return failure(wire, 400, f"the body is no JSON: {error}")
    if not isinstance(data, dict):
        return failure(wire, 400, "the body is no JSON object")
    return _answer(wire, bare, query, data, hashlib.sha256(body).hexdigest()[:20])


def failure(wire: Wire, status: int, message: str, headers: Mapping[str, str] | None = None) -> DemoReply:
    """Return an error, as a provider who speaks this dialect words it."""
    found = _document(failures.document(wire, status, message))
    return replace(found, status=status, headers={**_JSON, **(headers or {})})


def _answer(wire: Wire, path: str, query: str, data: Json, name: str) -> DemoReply:
    found = _GEMINI_PATH.search(path)
    talk = read(wire, data, found["model"] if found else "")
    verb = found["verb"] if found else ""
    usage = read_tokens(talk)
    if path.endswith("/count_tokens"):
        return _document({"input_tokens": usage.input})
    if verb == "countTokens":
        return _document({"totalTokens": usage.input})
    if verb not in ("", "generateContent", "streamGenerateContent"):
        return failure(wire, 404, f"the demo model cannot {verb}")
    actions = script.answer(talk)
    first = next((action for action in actions if not isinstance(action, Wait)), None)
    if isinstance(first, Fail):
        return failure(wire, first.status, first.message)
    head = Head(name, talk.model or MODEL.name, int(time.time()), talk.usage_wanted, usage)
    answer = Answer(head, actions, replace(usage, output=written_tokens(actions)))
    return _sent(wire, answer, talk, verb, query)


def _sent(wire: Wire, answer: Answer, talk: Conversation, verb: str, query: str) -> DemoReply:
    streamed = talk.streamed or verb == "streamGenerateContent"
    if not streamed:
        failed = next((action for action in answer.actions if isinstance(action, Fail)), None)
        if failed is not None:
            return failure(wire, failed.status, failed.message)
        waits = sum(action.seconds for action in answer.actions if isinstance(action, Wait))
        return _document(voice.whole(wire, answer), waits)
    if verb and "alt=sse" not in query:
        return _document([voice.whole(wire, answer)])
    return DemoReply(200, voice.stream(wire, answer), _EVENTS)


def _models(path: str) -> object:
    """Return the list of models, with all fields that OpenAI's, Anthropic's and Gemini's lists have."""
    one = {"id": MODEL.name, "object": "model", "type": "model", "created": 0, "owned_by": "holdfast"}
    one |= {"display_name": "Demo", "created_at": "2026-01-01T00:00:00Z"}
    if not path.endswith("/models"):
        return one
    verbs = ["generateContent", "streamGenerateContent", "countTokens"]
    gemini = {"name": f"models/{MODEL.name}", "displayName": "Demo", "supportedGenerationMethods": verbs}
    return {"object": "list", "data": [one], "has_more": False, "models": [gemini]}


def _document(data: object, after: float = 0.0) -> DemoReply:
    return DemoReply(200, iter([Piece(json.dumps(data, ensure_ascii=False).encode(), after)]))
