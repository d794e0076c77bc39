"""Who may stand at the API's door, and for how long.

The server itself waits for ever: for the head of a request, for its body, for a client that does not read. Some hundred
half-open requests would make the API deaf, and nobody needs a key for them. Here each connection is in one phase, and
once a second somebody goes round and closes what has taken too long. When there are too many, the oldest that has shown
no key yet makes room, whatever it is at; else the oldest that has no whole request under way: so who has a key, the
operator first of all, gets in.
"""

import asyncio
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from typing import Any, ClassVar, cast

import httptools
import structlog
from starlette.types import Scope

from holdfast.api.edge.caller import is_admitted
from holdfast.daemon.server.takeover import TakenOver, upgrade_scope
from holdfast.daemon.server.whole_replies import WholeReplies, inner
from holdfast.errors import BadRequest, HeadTooLarge, HoldfastError, RequestTimeout, TooManyConnections
from holdfast.gateway.dispatch import Dispatcher
from holdfast.gateway.proxies import TrustedProxies
from holdfast.gateway.proxy.http import HANG_UP

ROUND_SECONDS = 1.0
MOST_HEADERS = 100
MOST_HEAD_BYTES = 64 << 10
"""Of a request's line and headers."""
LEAST_BODY_BYTES = 4 << 10
"""So much of a body comes within each ``body_seconds``, or all that is left of it."""
LEAVING_SECONDS = 2.0
UNREAD_SECONDS = 300.0
"""How long a client may take nothing of what was sent to it; one without a key, as long as it may be idle."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DoorSettings:
    head_seconds: float = 15.0
    body_seconds: float = 60.0
    idle_seconds: float = 30.0
    max_connections: int = 4096
    max_connections_per_peer: int = 1024
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    """Behind one, everybody has its address: these may have as many as there may be."""


class Phase(Enum):
    HEAD = "head"
    """Nothing, or a part of a request's head, has come."""
    BODY = "body"
    BUSY = "busy"
    """The request is whole: it is our turn."""
    IDLE = "idle"
    """Answered; another may come. The server closes it in time."""
    LEAVING = "leaving"
    """Refused. What it still sends is thrown away for a moment: to hang up at once would take the refusal with it."""


class Doorkeeper:
    """Knows all connections without a WebSocket, and counts those with one, too."""

    def __init__(self, settings: DoorSettings, dispatcher: Dispatcher | None = None) -> None:
        self.settings = settings
        self.dispatcher = dispatcher
        self._timer: asyncio.TimerHandle | None = None
        self._connections: dict[GuardedProtocol, None] = {}  # in the order in which they came
        self._said_at = -60.0

    def protocol(self) -> type["GuardedProtocol"]:
        """Return the class that the server makes for each connection."""
        return type("GuardedProtocol", (GuardedProtocol,), {"door": self})

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(ROUND_SECONDS, self._go_round)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def let_in(self, new: "GuardedProtocol") -> bool:
        """Say whether there is room for a connection, if need be in place of another."""
        everybody = new.connections  # the server's own list, with WebSockets
        if len(everybody) > self.settings.max_connections and not self._make_room(self._connections, new):
            return False
        peer = new.client[0] if new.client else ""
        if len(everybody) > self.settings.max_connections_per_peer and not self.settings.proxies.include(peer):
            same = [one for one in everybody if (getattr(one, "client", None) or ("",))[0] == peer]
            if len(same) > self.settings.max_connections_per_peer:
                mine = [one for one in self._connections if one.client and one.client[0] == peer]
                if not self._make_room(mine, new):
                    return False
        self._connections[new] = None
        return True

    def forget(self, one: "GuardedProtocol") -> None:
        self._connections.pop(one, None)

    def _make_room(self, among: Iterable["GuardedProtocol"], new: "GuardedProtocol") -> bool:
        self._tell(len(new.connections))
        oldest = next((one for one in among if not one.is_known and one is not new), None)
        if oldest is None:
            oldest = next((one for one in among if one.phase is not Phase.BUSY), None)
        if oldest is None:
            return False
        self.forget(oldest)
        oldest.connections.discard(oldest)
        oldest.transport.abort()
        return True

    def _tell(self, count: int) -> None:
        """Log it once a minute: whoever opens thousands must not fill the log as well."""
        now = asyncio.get_running_loop().time()
        if now - self._said_at >= 60:
            self._said_at = now
            log.warning("http.too_many_connections", connections=count, remedy="max_connections, or who opens them")

    def _go_round(self) -> None:
        now = asyncio.get_running_loop().time()
        for one in list(self._connections):
            one.check(now)
        self.start()


class GuardedProtocol(WholeReplies):
    """One connection to the API."""

    door: ClassVar[Doorkeeper]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.phase = Phase.HEAD
        self._since = self.loop.time()
        self._head_bytes = 0
        self._body_bytes = 0
        self._too_much = False
        self._unread = (0, 0.0)
        self._known = False
        self._data = b""
        """What is being read."""

    @property
    def is_known(self) -> bool:
        """Whether a key, or a link that is one, came with any request so far."""
        self._known = self._known or (self.cycle is not None and is_admitted(self.cycle.scope))
        return self._known

    # -- what the server's own protocol is told ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        super().connection_made(transport)
        if not self.door.let_in(self):
            self._refuse(TooManyConnections("too many connections are open; close some, or try again"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.door.forget(self)
        super().connection_lost(exc)

    def eof_received(self) -> None:
        if self.phase is Phase.LEAVING:
            self.transport.close()
        super().eof_received()

    def data_received(self, data: bytes) -> None:
        if self.phase is Phase.LEAVING or self.transport.is_closing():
            return
        if self.phase is Phase.IDLE:
            self._enter(Phase.HEAD)
        if self.phase is Phase.HEAD:
            self._head_bytes += len(data)
        self._data = data
        super().data_received(data)
        self._data = b""
        if self.phase is Phase.HEAD and self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self._refuse_head()

    def handle_websocket_upgrade(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # an earlier request is not answered yet: two would write on one connection
            return
        if (self.scope["method"], self.scope["http_version"]) != ("GET", "1.1"):
            self._refuse(BadRequest("a WebSocket is opened by GET and HTTP/1.1"))
            return
        self.door.forget(self)  # the server has it in its list, as what it is now
        if not self._hand_over():
            super().handle_websocket_upgrade()

    def _hand_over(self) -> bool:
        """Give the connection to the gateway, if it is for the address of a session."""
        if self.door.dispatcher is None:
            return False
        carry = self.door.dispatcher.websocket(upgrade_scope(cast(Scope, self.scope), self.url))
        if carry is None:
            return False
        upgrade = sys.exc_info()[1]  # of the parser, which tells how far it has read
        rest = self._data[upgrade.args[0] :] if isinstance(upgrade, httptools.HttpParserUpgrade) else b""
        self.connections.discard(self)
        taken = TakenOver(inner(self.transport), self.client, cast("set[object]", self.connections), rest)
        task = self.loop.create_task(taken.carry(carry))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)
        return True

    def on_message_begin(self) -> None:
        self._enter(Phase.HEAD)
        self._known = self.is_known  # the next request has a scope of its own
        super().on_message_begin()
        self.scope["extensions"] = {HANG_UP: {"now": self.transport.abort}}

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.phase is Phase.BODY:
            return  # after the body: it must not look as if it had been there when the request was judged
        super().on_header(name, value)
        if len(self.headers) > MOST_HEADERS:
            self._too_much = True
            raise ValueError("too many headers")  # ends the parser, which ends with send_400_response

    def on_headers_complete(self) -> None:
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MOST_HEAD_BYTES:
            self._too_much = True
            raise ValueError("the head is too large")
        self._enter(Phase.BODY)
        self._body_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._enter(Phase.IDLE if self.cycle is not None and self.cycle.response_complete else Phase.BUSY)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.phase is Phase.BUSY and not self.pipeline:
            self._enter(Phase.IDLE)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        if self._too_much:
            self._refuse_head()
        else:
            self._refuse(BadRequest("this is no HTTP request that can be read"))

    # -- what the doorkeeper does -------------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Close it, if it has taken too long."""
        if self._is_unread(now) or (self.phase is Phase.LEAVING and now - self._since > LEAVING_SECONDS):
            self.transport.abort()
        elif self.phase is Phase.HEAD and now - self._since > self.door.settings.head_seconds:
            self._refuse_late("the head of a request did not come in time")
        elif self.phase is Phase.IDLE and now - self._since > self.door.settings.idle_seconds + ROUND_SECONDS:
            self.transport.close()  # the server forgets some, where a body came after its answer
        elif self.phase is Phase.BODY and now - self._since > self.door.settings.body_seconds:
            if self._body_bytes < LEAST_BODY_BYTES and not self.flow.read_paused:
                self._refuse_late("the body of the request stopped coming, or came too slowly")
            else:
                self._enter(Phase.BODY)
                self._body_bytes = 0

    def _enter(self, phase: Phase) -> None:
        if phase is Phase.HEAD and self.phase is not Phase.HEAD:
            self._head_bytes = 0
        self.phase = phase
        self._since = self.loop.time()

    def _is_unread(self, now: float) -> bool:
        waiting = self.transport.get_write_buffer_size()
        if waiting != self._unread[0] or not waiting:
            self._unread = (waiting, now)
        return now - self._unread[1] > (UNREAD_SECONDS if self.is_known else self.door.settings.idle_seconds)

    def _refuse_late(self, why: str) -> None:
        if self.cycle is not None and not self.cycle.response_complete and self.cycle.response_started:
            self.transport.abort()  # half of an answer is out: nothing can be told any more
        else:
            self._refuse(RequestTimeout(f"{why}; send it again"))

    def _refuse_head(self) -> None:
        limit = f"{MOST_HEADERS} headers and {MOST_HEAD_BYTES >> 10} KB in all"
        self._refuse(HeadTooLarge(f"the head of the request is too large: at most {limit}"))

    def _refuse(self, error: HoldfastError) -> None:
        """Send an error in the shape that all errors have, as the last word on this connection."""
        body = json.dumps({"error": {"code": error.code, "message": error.message, "request_id": ""}}).encode()
        lines = (
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
            "content-type: application/json",
            f"content-length: {len(body)}",
        )
        self.transport.write("\r\n".join((*lines, "connection: close", "\r\n")).encode() + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._enter(Phase.LEAVING)
