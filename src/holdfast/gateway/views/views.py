"""What answers at the addresses ``terminal`` and ``desktop``, for visitors that were let in."""

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol
from urllib.parse import parse_qsl

from starlette.types import Scope

from holdfast.errors import BadRequest, NotFound, TooManyConnections
from holdfast.gateway.addresses import HostNames, SessionAddress
from holdfast.gateway.admission import Visitor
from holdfast.gateway.pages import StaticPage
from holdfast.gateway.pages.assets import Assets
from holdfast.gateway.proxy.upstream import PortConnections
from holdfast.gateway.proxy.websocket import Client
from holdfast.gateway.services.engine import SessionServices
from holdfast.gateway.views.desktop import DESKTOP, DesktopFeed
from holdfast.gateway.views.page import ViewPage
from holdfast.gateway.views.socket import OwnSocket
from holdfast.gateway.views.stay import Stay
from holdfast.gateway.views.terminal import TerminalFeed
from holdfast.records.services import TERMINAL
from holdfast.sessions.session import Session
from holdfast.sessions.use.processes import Processes

VIEWS: Final = frozenset({TERMINAL, DESKTOP})
"""Names that lead to a page of ours, in every session."""
SOCKET = "/.holdfast/socket"
STATE = "/.holdfast/state"
WAKE = "/.holdfast/wake"
MOST_STAYS = 64
"""Open WebSockets of ours into one session."""


class _View(Protocol):
    async def serve(self, stay: Stay) -> None: ...


class OwnViews:
    def __init__(
        self,
        names: HostNames,
        processes: Processes,
        upstreams: PortConnections,
        services: SessionServices,
        clock: Callable[[], float],
    ) -> None:
        self.assets = Assets()
        self._names = names
        self._clock = clock
        self._views: dict[str, _View] = {
            TERMINAL: TerminalFeed(processes),
            DESKTOP: DesktopFeed(upstreams, services),
        }
        self._pages = {name: ViewPage(name, self.assets) for name in self._views}
        self._count: Counter[str] = Counter()
        self.stays: set[Stay] = set()
        """Who is here now."""

    def __contains__(self, label: str) -> bool:
        return label in self._views

    def page(self, label: str, host: str, method: str, path: str) -> StaticPage:
        """Return the page of a view. Raises ``NotFound``: a view has one page only."""
        if path != "/" or method not in ("GET", "HEAD"):
            raise NotFound("there is nothing at this address; the page is at /")
        return self._pages[label].render(host, self._names.own_hosts(host))

    async def serve(
        self, session: Session, place: SessionAddress, visitor: Visitor, scope: Scope, client: Client
    ) -> None:
        """Open a view's WebSocket, and carry it to its end. Raises an error of ours before it is open."""
        if scope["path"] != SOCKET:
            raise NotFound(f"there is no WebSocket at this address; it is at {SOCKET}")
        if self._count[session.id] >= MOST_STAYS:
            raise TooManyConnections(f"{MOST_STAYS} terminals and desktops of this session are open; close some")
        try:
            query = dict(parse_qsl(scope["query_string"].decode("latin-1"), max_num_fields=20))
        except ValueError:
            raise BadRequest("the query has too many fields") from None
        self._count[session.id] += 1
        try:
            async with OwnSocket.opened(client, scope, tells_alive=visitor.label == TERMINAL) as socket:
                stay = Stay(session, place, visitor, socket, query, lambda: session.touch(self._clock()))
                self.stays.add(stay)
                try:
                    await self._views[visitor.label].serve(stay)
                finally:
                    self.stays.discard(stay)
        finally:
            self._count[session.id] -= 1
            if not self._count[session.id]:
                del self._count[session.id]

    def hang_up(self) -> None:
        for stay in list(self.stays):
            stay.socket.end()
