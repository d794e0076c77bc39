"""The way out of all sandboxes of this daemon: one proxy per session that has an allow-list.

In the sandbox the proxy is at 127.0.0.1:3128, where the runner listens; each connection to it comes out here.
"""

import asyncio
import contextvars
from collections.abc import Mapping

import structlog

from holdfast.broker.egress import addresses
from holdfast.broker.egress.addresses import PrivateHosts
from holdfast.broker.egress.metrics import EgressMetrics
from holdfast.broker.egress.proxy import EgressDeadlines, EgressProxy
from holdfast.broker.egress.upstream import EgressUpstream, Resolve, hang_up
from holdfast.concurrency import cancel_and_wait
from holdfast.errors import BadInput
from holdfast.link.link import Link
from holdfast.network.http_peer import Stream
from holdfast.network.names import Names, Share
from holdfast.network.proxies import Proxies
from holdfast.records.host_pattern import as_address
from holdfast.records.network import NetworkPolicy
from holdfast.records.spec import SessionSpec

log = structlog.get_logger(__name__)

LISTENER = "egress"
PORT = 3128
MAX_CONNECTIONS = 64
"""Per session."""
MAX_TURNED_AWAY = 64
"""How many more are told so at the same time; beyond that they are hung up on without a word."""
OPEN_SECONDS = 20.0

_URL = f"http://127.0.0.1:{PORT}"
_LOCAL = "localhost,127.0.0.1,::1"
_ENVIRONMENT = {
    "HTTP_PROXY": _URL,
    "HTTPS_PROXY": _URL,
    "NO_PROXY": _LOCAL,
    "http_proxy": _URL,  # curl knows this one only in lower case
    "https_proxy": _URL,
    "no_proxy": _LOCAL,
}


class EgressBroker:
    """A ``WayOut`` of the session service."""

    def __init__(
        self,
        private: PrivateHosts,
        metrics: EgressMetrics,
        *,
        resolve: Resolve | None = None,
        proxies: Proxies | None = None,
        deadlines: EgressDeadlines | None = None,
    ) -> None:
        self._private = private
        self._metrics = metrics
        self._names = Names()
        self._proxy_names = Share(self._names)
        self._resolve = resolve
        self._proxies = proxies or Proxies()
        self._shares: dict[str, Share] = {}
        self._deadlines = deadlines or EgressDeadlines()
        self._tasks: dict[str, set[asyncio.Task[None]]] = {}

    def check(self, policy: NetworkPolicy, /) -> None:
        for pattern in policy.allow or ():
            address = as_address(pattern.host)
            why = addresses.refusal(pattern.host, address, self._private) if address is not None else None
            if not pattern.below:
                why = why or addresses.refusal_of_name(pattern.host)
            if why:
                raise BadInput(f"network.allow: '{pattern}' {why.why}, and no session may reach it; {why.remedy}")

    def environment(self, policy: NetworkPolicy, /) -> Mapping[str, str]:
        return {} if policy.allow is None else _ENVIRONMENT

    async def open(self, link: Link, spec: SessionSpec, /) -> None:
        if spec.network.allow is not None:
            await link.call("listen", {"name": LISTENER, "port": PORT}, timeout=OPEN_SECONDS)

    def attach(self, link: Link, spec: SessionSpec, /) -> None:
        policy = spec.network
        if policy.allow is None:
            return
        session_id = link.session_id
        resolve = self._resolve or self._shares.setdefault(session_id, Share(self._names)).look_up
        upstream = EgressUpstream(self._private, resolve, self._proxies, self._proxy_names.look_up)
        proxy = EgressProxy(session_id, policy, upstream, self._metrics, self._deadlines)
        tasks = self._tasks.setdefault(session_id, set())
        link.take_callers(LISTENER, lambda reader, writer: self._take(proxy, tasks, session_id, (reader, writer)))

    def _take(self, proxy: EgressProxy, tasks: set[asyncio.Task[None]], session_id: str, stream: Stream) -> None:
        if len(tasks) >= MAX_CONNECTIONS + MAX_TURNED_AWAY or tasks is not self._tasks.get(session_id):
            stream[1].close()
            return
        if len(tasks) >= MAX_CONNECTIONS:
            log.warning("egress.too_many", session_id=session_id, limit=MAX_CONNECTIONS)
            work = proxy.turn_away(stream, f"this session has {MAX_CONNECTIONS} connections already")
        else:
            work = proxy.serve(stream)
        # A context of its own: what the log knows of the request that happened to make the session is not about this.
        task = asyncio.create_task(work, name=f"egress:{session_id}", context=contextvars.Context())
        tasks.add(task)
        self._metrics.open.inc()
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda task: self._ended(task, stream))

    def _ended(self, task: asyncio.Task[None], stream: Stream) -> None:
        hang_up(stream[1])
        self._metrics.open.dec()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("egress.failed", task=task.get_name(), exc_info=error)

    def detach(self, session_id: str, /) -> None:
        self._shares.pop(session_id, None)
        for task in self._tasks.pop(session_id, ()):
            task.cancel()

    async def close(self) -> None:
        """Hang up on everybody, because the daemon stops. Sandboxes stay, and call the next daemon."""
        tasks = [task for group in self._tasks.values() for task in group]
        for session_id in list(self._tasks):
            self.detach(session_id)
        await cancel_and_wait(*tasks)
        await self._names.close()
