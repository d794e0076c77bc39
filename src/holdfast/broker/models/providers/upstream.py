"""A provider, as the proxy reaches it: a request goes out, and an answer comes back piece by piece."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.broker.models.intake.lifted import Lifted
from holdfast.broker.models.providers.catalogue import Provider


@dataclass(frozen=True, slots=True)
class Outgoing:
    provider: Provider
    method: str
    path: str
    """What follows the provider's base URL, quoted."""
    query: Sequence[tuple[str, str]]
    headers: Mapping[str, str]
    """With the key in it: not for any log."""
    body: bytes | None
    lifted: Lifted = field(default_factory=Lifted)
    """What the marks in the body stand for."""


class Unreachable(Exception):
    """There is no answer. The message says why, in words that may be shown."""


class Stale(Unreachable):
    """A connection that was kept open had been closed by the other side meanwhile: nothing was asked yet."""


class Broken(Exception):
    """An answer has broken off."""


class Reply(ABC):
    """The beginning of an answer. It is closed by whoever got it."""

    status: int
    headers: Sequence[tuple[str, str]]

    @property
    def is_stream(self) -> bool:
        return any(name.lower() == "content-type" and "text/event-stream" in value for name, value in self.headers)

    @abstractmethod
    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the pieces as they come, no faster than they are taken. Raises ``Broken``."""

    @abstractmethod
    def close(self) -> None:
        """Hang up, unless all has been read."""


class Upstream(ABC):
    @abstractmethod
    async def send(self, outgoing: Outgoing, /) -> Reply:
        """Send a request, and return when the headers are there, however long that takes. Raises ``Unreachable``."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections; no more will be sent."""
