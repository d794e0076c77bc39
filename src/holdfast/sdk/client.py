"""The way into a daemon."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from typing import Self
from urllib.parse import quote

from holdfast.sdk.admin.images import Images
from holdfast.sdk.admin.keys import Keys
from holdfast.sdk.connection.discovery import find
from holdfast.sdk.connection.transport import Transport
from holdfast.sdk.sessions.copies import Snapshots, Strays, Workspaces
from holdfast.sdk.sessions.events import SessionEvent, session_events
from holdfast.sdk.sessions.results import Limits, SessionInfo, given, new_key, of_wire
from holdfast.sdk.sessions.session import PendingSession, Session
from holdfast.sdk.threads.results import Models, ThreadInfo, UsageReport, models_of_wire, report_of_wire, thread_of_wire
from holdfast.sdk.threads.thread import Thread

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
            limits = given(**asdict(limits))
        if isinstance(network, Mapping):
            network = {name: list(hosts) for name, hosts in network.items()}
        body = given(
            image=image,
            ttl_seconds=ttl_seconds,
            env=env and dict(env),
            limits=limits and dict(limits),
            network=network,
            writable_root=writable_root,
            metadata=metadata and dict(metadata),
            sleep=sleep and dict(sleep),
            snapshot=snapshot,
            workspace=workspace,
        )
        key = idempotency_key or new_key()

        async def create() -> Session:
            data = await self._transport.call("POST", "/v1/sessions", json_body=body, idempotency_key=key)
            return Session(self._transport, of_wire(SessionInfo, data))

        return PendingSession(create)

    async def get_session(self, session_id: str) -> Session:
        data = await self._transport.call("GET", f"/v1/sessions/{quote(session_id, safe='')}")
        return Session(self._transport, of_wire(SessionInfo, data))

    async def list_sessions(self, status: str | Iterable[str] | None = None, *, stats: bool = False) -> list[Session]:
        """List all sessions with one of these statuses.

        With ``stats``, the ``info.stats`` of active ones says what they use.
        """
        wanted = [status] if isinstance(status, str) else None if status is None else list(status)
        params = given(limit=str(PAGE), stats="true" if stats else None, status=wanted)
        found = await self._transport.pages("/v1/sessions", "sessions", params)
        return [Session(self._transport, of_wire(SessionInfo, one)) for one in found]

    def events(
        self,
        after: int | None = None,
        *,
        kinds: str | Iterable[str] | None = None,
        session_id: str | None = None,
        thread: str | None = None,
        follow: bool = True,
    ) -> AsyncGenerator[SessionEvent, None]:
        """Yield what happened to sessions and threads after event ``after`` (None: all that are kept), and then what
        happens, for ever. ``thread`` is a key: only of that one.

        In order, each once. A connection that breaks, or a daemon that starts again, is bridged. Keep the ``seq`` of
        the last event that you have dealt with, to go on after it. ``follow=False`` ends with what there is now.
        """
        wanted = [kinds] if isinstance(kinds, str) else None if kinds is None else list(kinds)
        params = given(kind=wanted, session_id=session_id, thread=thread)
        return session_events(self._transport, params, after, follow=follow)

    def thread(self, key: str, *, owner: str | None = None) -> Thread:
        """Return the conversation of this key. Nobody is asked; the first message makes it. ``owner`` is for admins."""
        return Thread(self._transport, key, owner)

    async def list_threads(self, prefix: str | None = None, *, owner: str | None = None) -> list[ThreadInfo]:
        """List all threads whose key begins so, the last used first."""
        params = given(limit=str(PAGE), prefix=prefix, owner=owner)
        return [thread_of_wire(one) for one in await self._transport.pages("/v1/threads", "threads", params)]

    async def models(self) -> Models:
        """Ask what the daemon's providers offer, and what a new thread would use."""
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
        """Ask what calls to models have cost, with a line for each ``thread``, ``model``, ``day`` or ``owner``.

        ``thread`` is a key: only of threads of that key. ``since`` and ``until`` are days (UTC), both included.
        ``owner`` is for admins, who else get everybody's.
        """
        wishes = given(by=by, thread=thread, owner=owner, since=since, until=until, limit=limit)
        params = {name: str(value) for name, value in wishes.items()}
        return report_of_wire(await self._transport.call("GET", "/v1/usage", params=params))

    async def node(self) -> str | None:
        """Ask for the name of the daemon's node; None where the daemon is older and does not tell it."""
        node = (await self._transport.call("GET", "/healthz")).get("node")
        return node if isinstance(node, str) else None

    async def close(self) -> None:
        """Close the connections. Sessions live on."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()
