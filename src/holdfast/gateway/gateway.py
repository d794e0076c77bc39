"""What answers at the addresses of sessions: lets visitors in, wakes the session, and hands the request on."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from urllib.parse import parse_qsl

import structlog
from starlette.types import Receive, Scope, Send

from holdfast.concurrency import cancel_and_wait, every
from holdfast.errors import BadRequest, Forbidden, HoldfastError, NotFound, Unauthorized
from holdfast.gateway.addresses import HostNames, SessionAddress
from holdfast.gateway.admission import Admission, Visitor
from holdfast.gateway.links import ENTER, local_path
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.gateway.pages import ENTER as ENTER_PAGE
from holdfast.gateway.pages import STARTING, WAITING, StaticPage, problem
from holdfast.gateway.pages.assets import ASSETS
from holdfast.gateway.proxy import websocket
from holdfast.gateway.proxy.headers import COOKIE
from holdfast.gateway.proxy.http import HttpProxy, ProxiedRequest
from holdfast.gateway.proxy.upstream import PortConnection, PortConnections
from holdfast.gateway.proxy.websocket import Client
from holdfast.gateway.rules import RequestFacts, asked, check_origin
from holdfast.gateway.services.engine import SessionServices
from holdfast.gateway.telling import Telling
from holdfast.gateway.tokens import without_token
from holdfast.gateway.tunnels import PortTarget, Tunnels
from holdfast.gateway.views.stay import Stay
from holdfast.gateway.views.views import STATE, WAKE, OwnViews
from holdfast.gateway.visits import Token, Visits
from holdfast.gateway.waking import PATIENCE_SECONDS, Waking, is_on_purpose
from holdfast.records.services import ServiceSpec
from holdfast.sessions.session import Session

log = structlog.get_logger(__name__)

OURS = "/.holdfast/"
MOST_FORM = 8 << 10
MOST_FIELDS = 10
_JSON = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))
LOOK_SECONDS = 1.0
"""How often it is looked whether those who stay may still be here: with what is remembered of them, 3 s at most."""


class Gateway:
    """Use ``running()`` around its use."""

    def __init__(
        self,
        names: HostNames,
        admission: Admission,
        visits: Visits,
        tunnels: Tunnels,
        waking: Waking,
        services: SessionServices,
        upstreams: PortConnections,
        views: OwnViews,
        telling: Telling,
        metrics: GatewayMetrics,
        clock: Callable[[], float],
    ) -> None:
        self.names = names
        self._admission = admission
        self._visits = visits
        self._tunnels = tunnels
        self._waking = waking
        self._services = services
        self._upstreams = upstreams
        self._proxy = HttpProxy(upstreams)
        self._views = views
        self._telling = telling
        self._metrics = metrics
        self._clock = clock
        metrics.open.set_function(lambda: len(upstreams.in_use) + len(views.stays))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        looking = asyncio.create_task(every(LOOK_SECONDS, self._look_round, on_failure="gateway.look.failed"))
        try:
            async with self._visits.running(), self._services.running():
                yield
        finally:
            self.hang_up()
            await cancel_and_wait(looking)
            self._upstreams.close_all()

    def hang_up(self) -> None:
        """End what stays open: the daemon stops."""
        for one in list(self._upstreams.in_use):
            self._upstreams.cut(one)
        self._views.hang_up()

    async def _look_round(self) -> None:
        """Hang up on those who may not be here any more, and where the session has gone to sleep."""
        for one in list(self._upstreams.in_use):
            if not await self._may_stay(one):
                self._upstreams.cut(one)
        for stay in list(self._views.stays):
            if not await self._may_stay(stay):
                stay.socket.end()

    async def _may_stay(self, one: PortConnection | Stay) -> bool:
        return self._waking.is_awake(one.session) and await self._admission.is_still_in(one.place, one.visitor)

    # -- requests ------------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP request to the address of a session."""
        host = host_of(scope)
        place = self.names.place(host)
        assert place is not None, "the dispatcher has looked"
        request = asked(scope["method"], self._origin(scope, host), scope["headers"])
        try:
            if scope["method"] == "TRACE" or scope["http_version"] not in ("1.0", "1.1"):
                raise BadRequest("neither TRACE nor versions other than HTTP/1.0 and 1.1 are carried into sandboxes")
            if scope["path"].startswith(OURS):
                await self._ours(place, request, scope, receive, send)
            else:
                await self._theirs(place, request, scope, receive, send)
        except HoldfastError as error:
            self._telling.refused(place, error)
            await _refuse(request, error, send)

    async def _theirs(
        self, place: SessionAddress, request: RequestFacts, scope: Scope, receive: Receive, send: Send
    ) -> None:
        visitor = await self._admission.admit(place, request, scope["query_string"])
        if request.is_navigation and (visitor.token is not None or _shows_token(scope, place)):
            await self._take_out_token(place, visitor.token, request, scope, send)
            return
        is_view = visitor.label in self._views
        page = self._views.page(visitor.label, host_of(scope), scope["method"], scope["path"]) if is_view else None
        target = None if is_view else await self._tunnels.target(place.session_id, visitor.label)
        session = await self._waking.awake(place.session_id, request, by_program=visitor.by_program)
        if session is None:
            await _send_page(503, WAITING, send, [(b"retry-after", b"1")])
            return
        if page is not None:
            self._telling.opened(place, visitor, session)
            await _send_page(200, page, send)
            return
        assert target is not None
        if target.service is not None and not await self._is_up(session, target.service, request, visitor):
            await _send_page(503, STARTING, send, [(b"retry-after", b"1")])
            return
        errand = self._errand(place, visitor, session, target, scope)
        on_purpose = is_on_purpose(request, by_program=visitor.by_program)
        with session.in_use() if on_purpose else contextlib.nullcontext():
            await self._proxy.carry(errand, scope, receive, send)

    async def _is_up(self, session: Session, service: ServiceSpec, request: RequestFacts, visitor: Visitor) -> bool:
        """Start a service for somebody who goes to its page, or asks with a key; False where a person had better wait
        at a page of ours.

        What a page asks for in the background starts nothing, not even by a POST: the page of a service that nobody
        looks at any more would keep it running.
        """
        if self._services.is_ready(session, service):
            return True
        starts = visitor.by_program or request.is_navigation
        patience = PATIENCE_SECONDS if starts and not visitor.by_program else None
        return await self._services.make_ready(session, service, starts=starts, patience=patience)

    def _errand(
        self, place: SessionAddress, visitor: Visitor, session: Session, target: PortTarget, scope: Scope
    ) -> ProxiedRequest:
        self._telling.opened(place, visitor, session)
        return ProxiedRequest(
            session=session,
            target=target,
            place=place,
            visitor=visitor,
            host=host_of(scope).encode("latin-1"),
            scheme=self._scheme(scope),
            query=without_token(scope["query_string"], place.session_id),
            passes_host=self.names.is_local,
        )

    async def websocket(self, scope: Scope, client: Client) -> None:
        """Answer a WebSocket's handshake at the address of a session, and carry its frames."""
        host = host_of(scope)
        place = self.names.place(host)
        assert place is not None, "the dispatcher has looked"
        request = asked(scope["method"], self._origin(scope, host), scope["headers"], is_websocket=True)
        try:
            visitor = await self._admission.admit(place, request, scope["query_string"])
            if visitor.label in self._views:
                await self._open_view(place, visitor, request, scope, client)
                return
            target = await self._tunnels.target(place.session_id, visitor.label)
            session = await self._waking.awake(place.session_id, request, by_program=visitor.by_program)
            assert session is not None, "only a page waits"
            if target.service is not None:
                await self._is_up(session, target.service, request, visitor)
            errand = self._errand(place, visitor, session, target, scope)
            await websocket.carry(self._upstreams, errand, scope, client, lambda: session.touch(self._clock()))
        except HoldfastError as error:
            self._telling.refused(place, error)
            if not client.answered:
                status, headers, body = _as_json(error)
                headers = [one for one in headers if one[0] != b"connection"]
                client.answer(f"HTTP/1.1 {status} Refused".encode(), [*headers, (b"connection", b"close")], body)

    async def _open_view(
        self, place: SessionAddress, visitor: Visitor, request: RequestFacts, scope: Scope, client: Client
    ) -> None:
        if not visitor.by_program:  # also of a public address: only its own page opens a terminal
            check_origin(request)
        session = await self._waking.awake(place.session_id, request, by_program=visitor.by_program)
        assert session is not None, "only a page waits"
        self._telling.opened(place, visitor, session)
        await self._views.serve(session, place, visitor, scope, client)

    # -- our own pages -------------------------------------------------------------------------------------------------

    async def _ours(
        self, place: SessionAddress, request: RequestFacts, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if request.is_ambiguous:
            raise BadRequest("a header that says who asks, or from where, came twice")
        path = scope["path"]
        if path.startswith(ASSETS) and request.method in ("GET", "HEAD"):
            await self._send_asset(path, request, send)
            return
        if (request.method, path) in (("GET", STATE), ("POST", WAKE)):
            await self._send_state(place, request, scope, send)
            return
        if path != ENTER:
            raise NotFound("there is nothing at this address")
        bearer = request.headers.get(b"authorization")
        if bearer is not None:
            await self._enter_by_token(place, request, bearer, send)
        elif request.method == "POST":
            await self._enter_by_ticket(place, request, scope, receive, send)
        elif request.method in ("GET", "HEAD"):
            await _send_page(200, ENTER_PAGE, send)
        else:
            raise NotFound("there is nothing at this address")

    async def _send_asset(self, path: str, request: RequestFacts, send: Send) -> None:
        packed = b"gzip" in request.headers.get(b"accept-encoding", b"")
        found = await self._views.assets.find(path, packed=packed)
        if found is None:
            raise NotFound("there is nothing at this address")
        await _send(200, found[0], found[1], send)

    async def _send_state(self, place: SessionAddress, request: RequestFacts, scope: Scope, send: Send) -> None:
        """Say that the session is awake, or the error why not. To be asked by POST wakes it, as a person's doing."""
        visitor = await self._admission.admit(place, request, scope["query_string"])
        if not visitor.by_program:
            check_origin(request)
        await self._waking.awake(place.session_id, request, by_program=visitor.by_program)
        body = json.dumps({"awake": True}).encode()
        await _send(200, [*_JSON, (b"content-length", str(len(body)).encode())], body, send)

    async def _enter_by_ticket(
        self, place: SessionAddress, request: RequestFacts, scope: Scope, receive: Receive, send: Send
    ) -> None:
        origin = request.headers.get(b"origin")
        if origin is None or origin.decode("latin-1").lower() != request.origin:
            raise Forbidden("a link is handed in by this address's own page")
        form = await _read_form(receive)
        after = local_path(form.get("next", "/"))
        try:
            cookie, visit = await self._visits.redeem(place, form.get("ticket", ""))
        except HoldfastError:
            try:  # the page was loaded again: who is in already just goes on
                await self._admission.admit(place, request, b"")
            except HoldfastError:
                pass
            else:
                await _redirect(after, send)
                return
            raise
        self._telling.entered(visit)
        await _redirect(after, send, [(b"set-cookie", _cookie(cookie, request))])

    async def _enter_by_token(self, place: SessionAddress, request: RequestFacts, bearer: bytes, send: Send) -> None:
        scheme, _, text = bearer.partition(b" ")
        if scheme.lower() != b"bearer":
            raise Unauthorized("send the token as 'Authorization: Bearer <token>'")
        token = self._visits.check_token(place, text.strip().decode("latin-1"))
        cookie, visit = await self._visits.begin(place, token)
        self._telling.entered(visit)
        body = json.dumps({"entered": True}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"set-cookie", _cookie(cookie, request)),
        ]
        await _send(200, headers, body, send)

    async def _take_out_token(
        self, place: SessionAddress, token: Token | None, request: RequestFacts, scope: Scope, send: Send
    ) -> None:
        """Take the token out of the address bar at once, and give a cookie for it to whoever has none."""
        more = []
        if token is not None:
            cookie, visit = await self._visits.begin(place, token)
            self._telling.entered(visit)
            more.append((b"set-cookie", _cookie(cookie, request)))
        query = without_token(scope["query_string"], place.session_id).decode("latin-1")
        path = local_path(scope["raw_path"].decode("latin-1")) + (f"?{query}" if query else "")
        await _redirect(path, send, more)

    # -- where a request was sent to -----------------------------------------------------------------------------------

    def _scheme(self, scope: Scope) -> str:
        """Return how browsers reach these names: below a domain of the operator's a proxy has the certificate."""
        if self.names.is_local:
            return "https" if scope.get("scheme") in ("https", "wss") else "http"
        return self.names.scheme

    def _origin(self, scope: Scope, host: str) -> str:
        return f"{self._scheme(scope)}://{host.lower()}"


def host_of(scope: Scope) -> str:
    """Return the ``Host`` of a request; empty if it has none, or more than one."""
    found: list[bytes] = [value for name, value in scope["headers"] if name == b"host"]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def _shows_token(scope: Scope, place: SessionAddress) -> bool:
    query: bytes = scope["query_string"]
    return without_token(query, place.session_id) != query


def _cookie(value: str, request: RequestFacts) -> bytes:
    where = "SameSite=None; Partitioned" if request.is_in_frame else "SameSite=Lax"
    return f"{COOKIE}={value}; Path=/; HttpOnly; Secure; {where}".encode()


async def _read_form(receive: Receive) -> dict[str, str]:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MOST_FORM:
            raise BadRequest("the form is too large")
        if not message.get("more_body"):
            break
    try:
        return dict(parse_qsl(body.decode("latin-1"), max_num_fields=MOST_FIELDS))
    except ValueError:
        raise BadRequest("the form has too many fields") from None


async def _refuse(request: RequestFacts, error: HoldfastError, send: Send) -> None:
    more = _also(error)
    if request.is_navigation or (request.method == "POST" and b"text/html" in request.headers.get(b"accept", b"")):
        await _send_page(error.status, problem(error.code), send, more)
    else:
        status, headers, body = _as_json(error)
        await _send(status, headers, body, send)


def _as_json(error: HoldfastError) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    body = json.dumps({"error": {"code": error.code, "message": error.message}}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    return error.status, [*headers, *_also(error)], body


def _also(error: HoldfastError) -> list[tuple[bytes, bytes]]:
    if error.status == 503:
        return [(b"retry-after", b"1")]
    if error.status == 400:  # what comes after a request that could not be understood is not read
        return [(b"connection", b"close")]
    return []


async def _redirect(path: str, send: Send, more: list[tuple[bytes, bytes]] | None = None) -> None:
    headers = [(b"location", path.encode("utf-8")), (b"content-length", b"0"), (b"cache-control", b"no-store")]
    await _send(303, [*headers, *(more or [])], b"", send)


async def _send_page(status: int, page: StaticPage, send: Send, more: list[tuple[bytes, bytes]] | None = None) -> None:
    await _send(status, [*page.headers, *(more or [])], page.body, send)


async def _send(status: int, headers: list[tuple[bytes, bytes]], body: bytes, send: Send) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
