"""What stands behind the API. The daemon's wiring makes it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry
from starlette.requests import Request

from holdfast.api.files.links import FileLinks
from holdfast.callers.ring import KeyRing
from holdfast.gateway.links import Links
from holdfast.gateway.previews import Previews
from holdfast.gateway.services.engine import SessionServices
from holdfast.gateway.tunnels import Tunnels
from holdfast.gateway.visits import Visits
from holdfast.images.store import ImageInfo
from holdfast.sessions.service import SessionService
from holdfast.sessions.telling.events import EventFeed
from holdfast.threads.service import ThreadService


def asked_at(request: Request) -> str:
    """Return the host name by which a caller has reached the API: that of sandboxes has the same port."""
    return request.headers.get("host", "")


class Images(Protocol):
    """Images of the host. They are made by the daemon, who knows which of them are in use, and stands above the API."""

    async def list(self) -> Sequence[ImageInfo]: ...

    async def import_(self, name: str, source: str, /, *, replace: bool) -> ImageInfo:
        """Make an image from a root file system on the host: a directory or a tar file."""
        ...

    async def remove(self, name: str, /) -> None: ...


@dataclass(frozen=True, slots=True)
class GatewayServices:
    """The parts of the gateway that routes call."""

    links: Links
    tunnels: Tunnels
    visits: Visits
    services: SessionServices
    previews: Previews

    def urls(self, session_id: str, labels: Iterable[str], request: Request) -> dict[str, str]:
        """Return the addresses of a session by name, as who asks can use them."""
        return self.links.addresses(session_id, labels, asked_at(request))


@dataclass(frozen=True, slots=True)
class Services:
    """The services that the routes call. ``registry`` is what /metrics shows."""

    sessions: SessionService
    keys: KeyRing
    images: Images
    events: EventFeed
    threads: ThreadService
    links: FileLinks
    gateway: GatewayServices
    registry: CollectorRegistry
