"""The way into a daemon."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from holdfast.sdk.admin.images import Images
from holdfast.sdk.admin.keys import Keys
from holdfast.sdk.connection.discovery import find
from holdfast.sdk.connection.transport import Transport
from holdfast.sdk.sessions.copies import Snapshots, Strays, Workspaces
from holdfast.sdk.sessions.events import SessionEvent, session_events
from holdfast.sdk.sessions.results import Limits, SessionInfo, new_key, of_wire
from holdfast.sdk.sessions.session import PendingSession, Session
from holdfast.sdk.threads.results import Models, ThreadInfo, UsageReport, models_of_wire, report_of_wire
from holdfast.sdk.threads.thread import Thread, list_threads

DEFAULT_SECONDS = 60.0
DEFAULT_RETRIES = 4
PAGE = 500


class Client:
    """A daemon, by its URL and key; without them, the one on this machine.

    ``timeout`` (seconds) bounds each call but exec, which is bounded by its own ``timeout_ms``. ``retries`` is how
    often a call is repeated that found no daemon or a busy one; only calls that are safe to repeat are.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = DEFAULT_SECONDS,
        retries: int = DEFAULT_RETRIES,
    ) -> None:
        self._transport = Transport(find(url, api_key), timeout=timeout, retries=retries)
        self.images = Images(self._transport)
        self.keys = Keys(self._transport)
        self.snapshots = Snapshots(self._transport)
        self.workspaces = Workspaces(self._transport)
        self.strays = Strays(self._transport)

    @property
    def url(self) -> str:
        return self._transport.url

    def create_session(
        self,
        image: str | None = None,
        *,
        ttl_seconds: int | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | Mapping[str, float] | None = None,
        network: str | Mapping[str, Sequence[str]] | None = None,
        writable_root: bool | None = None,
        metadata: Mapping[str, str] | None = None,
        sleep: Mapping[str, float] | None = None,
        snapshot: str | None = None,
        workspace: str | None = None,
        idempotency_key: str | None = None,
    ) -> PendingSession:
        """``await`` it for a session that you destroy yourself; ``async with`` it for one that ends with the block.

        ``network`` is ``"none"``, ``"full"``, or ``{"allow": ["pypi.org", "*.pythonhosted.org"]}``. ``sleep`` says when
        it is put to sleep by itself: ``{"pause_after_seconds": 600, "hibernate_after_seconds": 3600}``. ``snapshot`` is
        the name or id of what it starts from. ``workspace`` is the name of a directory that it has at ``/workspace``
        and that outlives it; no other session can have it meanwhile.
        """
        if isinstance(limits, Limits):
            limits = {name: value for name, value in asdict(limits).items() if value is not None}
        wishes: dict[str, Any] = {
            "image": image,
            "ttl_seconds": ttl_seconds,
            "env": env and dict(env),
            "limits": limits and dict(limits),
            "network": _network(network),
            "writable_root": writable_root,
            "metadata": metadata and dict(metadata),
            "sleep": sleep and dict(sleep),
            "snapshot": snapshot,
            "workspace": workspace,
        }
        body = {name: value for name, value in wishes.items() if value is not None}
        key = idempotency_key or new_key()

        async def create() -> Session:
            data = await self._transport.call("POST", "/v1/sessions", json_body=body, idempotency_key=key)
            return Session(self._transport, of_wire(SessionInfo, data))

        return PendingSession(create)

    async def get_session(self, session_id: str) -> Session:
        data = await self._transport.call("GET", f"/v1/sessions/{quote(session_id, safe='')}")
        return Session(self._transport, of_wire(SessionInfo, data))

    async def list_sessions(self, status: str | Iterable[str] | None = None, *, stats: bool = False) -> list[Session]:
        """All sessions with one of these statuses, over as many pages as it takes.

        With ``stats``, the ``info.stats`` of active ones says what they use.
        """
        params: dict[str, str | list[str]] = {"limit": str(PAGE)}
        if stats:
            params["stats"] = "true"
        if status is not None:
            params["status"] = [status] if isinstance(status, str) else list(status)
        found: list[Session] = []
        while True:
            page = await self._transport.call("GET", "/v1/sessions", params=params)
            found += [Session(self._transport, of_wire(SessionInfo, one)) for one in page["sessions"]]
            if not page["next_cursor"]:
                return found
            params["cursor"] = page["next_cursor"]

    def events(
        self,
        after: int | None = None,
        *,
        kinds: str | Iterable[str] | None = None,
        session_id: str | None = None,
        thread: str | None = None,
        follow: bool = True,
    ) -> AsyncGenerator[SessionEvent, None]:
        """What happened to sessions and threads after event ``after`` (None: all that are kept), and then what happens,
        for ever. ``thread`` is a key: only of that one.

        In order, each once. A connection that breaks, or a daemon that starts again, is bridged. Keep the ``seq`` of
        the last event that you have dealt with, to go on after it. ``follow=False`` ends with what there is now.
        """
        return session_events(
            self._transport, after=after, kinds=kinds, session_id=session_id, thread=thread, follow=follow
        )

    def thread(self, key: str, *, owner: str | None = None) -> Thread:
        """The conversation of this key. Asks nobody; the first message makes it. ``owner`` is for admins."""
        return Thread(self._transport, key, owner)

    async def list_threads(self, prefix: str | None = None, *, owner: str | None = None) -> list[ThreadInfo]:
        """All whose key begins so, the last used first."""
        return await list_threads(self._transport, prefix=prefix, owner=owner)

    async def models(self) -> Models:
        """What the daemon's providers offer, and what a new thread would use."""
        return models_of_wire(await self._transport.call("GET", "/v1/models"))

    async def usage(
        self,
        by: str = "thread",
        *,
        thread: str | None = None,
        owner: str | None = None,
        since: date | str | None = None,
        until: date | str | None = None,
        limit: int = PAGE,
    ) -> UsageReport:
        """What calls to models have cost, with a line for each ``thread``, ``model``, ``day`` or ``owner``.

        ``thread`` is a key: only of threads of that key. ``since`` and ``until`` are days (UTC), both included.
        ``owner`` is for admins, who else get everybody's.
        """
        wishes = {"by": by, "thread": thread, "owner": owner, "since": since, "until": until, "limit": limit}
        params = {name: str(value) for name, value in wishes.items() if value is not None}
        return report_of_wire(await self._transport.call("GET", "/v1/usage", params=params))

    async def node(self) -> str | None:
        """The name of the daemon's node; None where the daemon is older and does not tell it."""
        node = (await self._transport.call("GET", "/healthz")).get("node")
        return node if isinstance(node, str) else None

    async def close(self) -> None:
        """Close the connections. Sessions live on."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _network(network: str | Mapping[str, Sequence[str]] | None) -> object:
    return {name: list(hosts) for name, hosts in network.items()} if isinstance(network, Mapping) else network
