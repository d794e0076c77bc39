"""What must outlive the daemon: rows in SQLite or Postgres, the guarded changes to them, and leases.

Nothing here knows what a status means. The session service decides; the store only refuses to let two deciders win.
"""

from holdfast.store.events import EventPage, EventRow, EventStore, Note
from holdfast.store.keys import KeyRow, KeyStore
from holdfast.store.reserve import Reserve, reserve_for, spending
from holdfast.store.session_rows import SessionChange, SessionRow
from holdfast.store.sessions import SessionStore
from holdfast.store.snapshots import SnapshotRow, SnapshotStore
from holdfast.store.store import Store
from holdfast.store.thread_leases import Idle
from holdfast.store.thread_news import ThreadKind
from holdfast.store.thread_rows import (
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
from holdfast.store.workspaces import Wish, WorkspaceRow, WorkspaceStore

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
