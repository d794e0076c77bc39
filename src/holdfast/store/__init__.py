"""The store: rows in SQLite or Postgres, the guarded changes to them, and leases. All that must outlive the daemon.

Nothing here knows what a status means. The services decide; the store only refuses to let two deciders win.

Read first: ``store`` (open and close), ``sessions/sessions`` (guarded changes of a session), ``threads/threads``.
The services above import this package, and nothing else of the database.
"""

from holdfast.store.database.reserve import Reserve, reserve_for, spending
from holdfast.store.events import EventStore
from holdfast.store.gateway.links import LinkStore
from holdfast.store.gateway.tunnels import TunnelStore
from holdfast.store.keys import KeyStore
from holdfast.store.sessions.sessions import SessionStore
from holdfast.store.sessions.snapshots import SnapshotStore
from holdfast.store.sessions.workspaces import WorkspaceStore, WorkspaceWish
from holdfast.store.store import Store
from holdfast.store.threads.leases import Idle
from holdfast.store.threads.news import ThreadKind
from holdfast.store.webhooks import WebhookCursors

__all__ = [
    "EventStore",
    "Idle",
    "KeyStore",
    "LinkStore",
    "Reserve",
    "SessionStore",
    "SnapshotStore",
    "Store",
    "ThreadKind",
    "TunnelStore",
    "WebhookCursors",
    "WorkspaceStore",
    "WorkspaceWish",
    "reserve_for",
    "spending",
]
