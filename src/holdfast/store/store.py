"""The store as the daemon sees it: open it once, close it once."""

from typing import Self

import sqlalchemy as sa

from holdfast.errors import ConfigError
from holdfast.store.budget_holds import BudgetHolds
from holdfast.store.database.database import Database, database_for
from holdfast.store.database.engine import parse_url
from holdfast.store.database.migrate import migrate
from holdfast.store.database.reserve import Reserve
from holdfast.store.gateway.links import LinkStore
from holdfast.store.gateway.tunnels import TunnelStore
from holdfast.store.keys import KeyStore
from holdfast.store.nodes import NodeStore
from holdfast.store.sessions.sessions import SessionStore
from holdfast.store.sessions.snapshots import SnapshotStore
from holdfast.store.sessions.workspaces import WorkspaceStore
from holdfast.store.threads.events import ThreadEvents
from holdfast.store.threads.files import ThreadFiles
from holdfast.store.threads.leases import ThreadLeases
from holdfast.store.threads.messages import MessageStore
from holdfast.store.threads.requests import ThreadRequests
from holdfast.store.threads.threads import ThreadStore
from holdfast.store.threads.turns import TurnStore
from holdfast.store.threads.watch import ThreadWatch
from holdfast.store.usage import UsageStore
from holdfast.store.webhooks import WebhookCursors


class Store:
    """All that must survive a restart. Made by ``open``; belongs to the event loop that opened it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.sessions = SessionStore(database)
        self.snapshots = SnapshotStore(database, self.sessions.events)
        self.workspaces = WorkspaceStore(database)
        self.keys = KeyStore(database)
        self.events = self.sessions.events
        self.links = LinkStore(database)
        self.webhooks = WebhookCursors(database)
        self.nodes = NodeStore(database)
        self.watch = ThreadWatch(database)
        self.tunnels = TunnelStore(database, self.events, self.watch)
        self.threads = ThreadStore(database, self.watch)
        self.leases = ThreadLeases(database, self.watch)
        self.messages = MessageStore(database, self.watch)
        self.turns = TurnStore(database, self.watch)
        self.thread_events = ThreadEvents(database, self.watch)
        self.thread_requests = ThreadRequests(database, self.watch)
        self.thread_files = ThreadFiles(database)
        self.usage = UsageStore(database)
        self.budget_holds = BudgetHolds(database)

    @classmethod
    async def open(cls, url: str, *, reserve: Reserve | None = None) -> Self:
        """Connect to ``url`` and bring its schema up to date.

        ``url`` is ``sqlite:////absolute/path``, ``sqlite:///relative/path`` or ``postgresql://user:password@host/name``.
        Raises ``ConfigError`` if the URL, the login or the schema version is wrong, and ``Unavailable`` if the
        database cannot be reached now. No message holds the password. ``reserve`` is for those who make room.
        """
        parsed = parse_url(url)
        try:
            await migrate(parsed)
        except TypeError as error:  # how asyncpg says that it does not know an option
            if parsed.query:
                raise ConfigError(f"database_url has an option that asyncpg does not know: {error}") from error
            raise
        database = database_for(parsed)
        database.reserve = reserve
        store = cls(database)
        try:
            await store.ping()
        except BaseException:
            await store.close()
            raise
        return store

    async def ping(self) -> None:
        """Ask the database for an answer; raises ``Unavailable`` if none comes."""
        await self._database.read(lambda connection: connection.scalar(sa.select(1)))

    async def close(self) -> None:
        """Let what is under way end, then close every connection. Closing twice is fine."""
        await self._database.close()
