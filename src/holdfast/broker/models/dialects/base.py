"""What the proxy must know of a dialect."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping

from pydantic_core import from_json

from holdfast.broker.models.answering.reading import Reading
from holdfast.broker.models.answering.sse import data_of


class Dialect(ABC):
    """Stateless: what is known of an answer is in its ``Reading``."""

    @abstractmethod
    def failure(self, status: int, message: str, code: str) -> Mapping[str, object]:
        """The body of an error."""

    @abstractmethod
    def broken(self, message: str) -> bytes:
        """The event that ends a stream which cannot go on, so that nobody takes what there is for all of it."""

    @abstractmethod
    def read(self, data: Mapping[str, object], reading: Reading) -> None:
        """Take in one event of a stream."""

    @abstractmethod
    def read_whole(self, data: Mapping[str, object], reading: Reading) -> None:
        """Take in an answer that came in one piece."""

    def read_event(self, event: bytes, reading: Reading) -> Mapping[str, object]:
        """As ``read``, from the bytes; returns what was in them."""
        data = data_of(event)
        if not data:
            return {}
        if data == b"[DONE]":
            reading.finished = reading.complete = True
            return {}
        try:
            value = from_json(data)
        except ValueError:
            return {}
        if not isinstance(value, dict):
            return {}
        self.read(value, reading)
        return value

    def is_bill_only(self, _data: Mapping[str, object]) -> bool:
        """Whether this event has nothing in it but usage that the proxy has asked for, and not the agent."""
        return False


def event(data: Mapping[str, object], name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()
