"""The body of a request to a model: which model it names, and the same question put to another one.

What is sent on is always written anew from what was understood: a body that could be understood in two ways (two
``model`` in one object, say) means to the provider what it means to us.
"""

import json
from collections.abc import Mapping
from dataclasses import replace

from pydantic_core import from_json

from holdfast.broker.dialects import DIALECTS
from holdfast.broker.dialects.foreign import has_foreign, without_foreign
from holdfast.broker.dialects.json import number, written
from holdfast.broker.dialects.question import CommonQuestion
from holdfast.broker.models.intake.lifted import Lifted
from holdfast.broker.models.providers.endpoints import Endpoint
from holdfast.vocabulary.models import Wire

_OTHERS = ("models", "fallbacks")
"""Where routers are told whom else to ask: they would answer with models that this thread may not use."""
_MOST_NAME = 200
"""Of a model, in characters. It is kept with the bill, and logged: not for sandboxes to fill the host's disk with."""
_CONVERSATION = ("messages", "input", "contents")
_MOST_OUTPUT = ("max_tokens", "max_completion_tokens", "max_output_tokens")


class BadQuestion(Exception):
    """The body is no question. The message says why."""


class Question:
    def __init__(
        self,
        endpoint: Endpoint,
        body: bytes,
        lifted: Lifted | None = None,
        *,
        size: int | None = None,
        is_big: bool = False,
    ) -> None:
        """``size`` is the body's with all that was lifted out of it. Raises ``BadQuestion``."""
        self.lifted = lifted or Lifted()
        self.is_big = is_big
        """Whether to work on it is for a thread."""
        self._endpoint = endpoint
        self._data = _parsed(body)
        if has_foreign(body):
            self._data = without_foreign(endpoint.wire, self._data)
        self.size = len(body) if size is None else size
        for name in ("stream", "background"):  # a word that others take for yes, we would not
            if not isinstance(self._data.get(name), bool | None):
                raise BadQuestion(f"{name} must be true or false")
        if self._data.get("background"):
            raise BadQuestion("background answers are not offered here: nobody would see what they cost")
        for name in _OTHERS:
            if self._data.get(name):
                raise BadQuestion(f"{name} is not taken here: a request names one model, its thread has the others")
        self.model = _model(endpoint.model if endpoint.model is not None else self._data.get("model"))
        self._told: dict[tuple[str, bool], bytes] = {}

    @property
    def streamed(self) -> bool:
        return self._endpoint.streams_by_path() or self._data.get("stream") is True

    @property
    def is_with_tools(self) -> bool:
        """Whether it offers tools, as questions of an agent at work do, but not those for a title."""
        return bool(self._data.get("tools"))

    @property
    def conversation(self) -> Mapping[str, object]:
        """The conversation so far, which stays the same if the question is asked again."""
        return {name: self._data.get(name) for name in _CONVERSATION}

    def most_output(self, otherwise: int) -> int:
        """Return the number of tokens that the answer may have; ``otherwise`` if it does not say."""
        options = self._data.get("generationConfig")
        options = options if isinstance(options, dict) else {}
        said = [self._data.get(name) for name in _MOST_OUTPUT] + [options.get("maxOutputTokens")]
        each = max((number(one) for one in said), default=0) or otherwise
        return each * max(number(self._data.get("n")), number(options.get("candidateCount")), 1)

    @property
    def wants_usage(self) -> bool:
        """Whether who asks has asked for the usage, too; in other dialects everybody gets it."""
        options = self._data.get("stream_options")
        return isinstance(options, dict) and options.get("include_usage") is True

    def must_ask_for_usage(self) -> bool:
        return self._endpoint.wire is Wire.CHAT and self.streamed and not self.wants_usage

    def talk(self, *, streamed: bool) -> CommonQuestion:
        """Read the question into the common form, for another dialect."""
        return replace(DIALECTS[self._endpoint.wire].read_question(self._data), streamed=streamed)

    def put_to(self, model: str, *, with_usage: bool) -> bytes:
        """The body for this model, with marks for what was lifted out; with ``with_usage`` it asks for the usage where
        that is needed."""
        key = (model, with_usage)
        if key not in self._told:
            self._told[key] = written(self._for(model, with_usage))
        return self._told[key]

    def _for(self, model: str, with_usage: bool) -> Mapping[str, object]:
        data = dict(self._data)
        if self._endpoint.model is None:
            data["model"] = model
        if with_usage and self.must_ask_for_usage():
            options = data.get("stream_options")
            data["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
        return data


def _parsed(body: bytes) -> Mapping[str, object]:
    try:
        try:
            data = from_json(body, allow_inf_nan=False)
        except ValueError:  # slower, and takes halves of characters that programs have cut apart
            data = json.loads(body, parse_constant=_no_number)
    except ValueError as error:
        raise BadQuestion(f"the request's body is no JSON: {error}") from None
    except RecursionError:
        raise BadQuestion("the request's body is nested too deeply") from None
    if not isinstance(data, dict):
        raise BadQuestion("the request's body is no JSON object")
    return data


def _no_number(text: str) -> object:
    raise ValueError(f"{text} is no number")


def _model(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise BadQuestion("the request names no model")
    if len(name) > _MOST_NAME or not name.isprintable():
        raise BadQuestion(f"what the request names is no model: that has at most {_MOST_NAME} printable characters")
    return name
