"""The store: rows in SQLite or Postgres, the guarded changes to them, and leases. All that must outlive the daemon.

Nothing here knows what a status means. The services decide; the store only refuses to let two deciders win.

Read first: ``store`` (open and close), ``sessions/sessions`` (guarded changes of a session), ``threads/threads``.
The services above import this package, and nothing else of the database.
"""

from holdfast.store.database.reserve import Reserve, reserve_for, spending
from holdfast.store.events import EventPage, EventRow, EventStore, Note
from holdfast.store.keys import KeyRow, KeyStore
from holdfast.store.sessions.rows import SessionChange, SessionRow
from holdfast.store.sessions.sessions import SessionStore
from holdfast.store.sessions.snapshots import SnapshotRow, SnapshotStore
from holdfast.store.sessions.workspaces import Wish, WorkspaceRow, WorkspaceStore
from holdfast.store.store import Store
from holdfast.store.threads.leases import Idle
from holdfast.store.threads.news import ThreadKind
from holdfast.store.threads.rows import (
    DEFAULT_CHANNEL,
    ChannelRow,
    FileKind,
    Lease,
    Line,
    MessageRow,
    MessageStatus,
    Mode,
    NewMessage,
    NodeRow,
    Put,
    RequestRow,
    SleepState,
    ThreadEventPage,
    ThreadEventRow,
    ThreadFileRow,
    ThreadRow,
    TurnRow,
    TurnState,
)
from holdfast.store.usage import UsageBy, UsageLine
from holdfast.store.usage_rows import UsageRow, UsageSum
from holdfast.store.webhooks import Cursor, WebhookCursors

__all__ = [
    "DEFAULT_CHANNEL",
    "ChannelRow",
    "Cursor",
    "EventPage",
    "EventRow",
    "EventStore",
    "FileKind",
    "Idle",
    "KeyRow",
    "KeyStore",
    "Lease",
    "Line",
    "MessageRow",
    "MessageStatus",
    "Mode",
    "NewMessage",
    "NodeRow",
    "Note",
    "Put",
    "RequestRow",
    "Reserve",
    "SessionChange",
    "SessionRow",
    "SessionStore",
    "SleepState",
    "SnapshotRow",
    "SnapshotStore",
    "Store",
    "ThreadEventPage",
    "ThreadEventRow",
    "ThreadFileRow",
    "ThreadKind",
    "ThreadRow",
    "TurnRow",
    "TurnState",
    "UsageBy",
    "UsageLine",
    "UsageRow",
    "UsageSum",
    "WebhookCursors",
    "Wish",
    "WorkspaceRow",
    "WorkspaceStore",
    "reserve_for",
    "spending",
]
