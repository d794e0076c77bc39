"""What must outlive the daemon: rows in SQLite or Postgres, the guarded changes to them, and leases.

Nothing here knows what a status means. The session service decides; the store only refuses to let two deciders win.
"""

from holdfast.store.events import EventPage, EventRow, EventStore
from holdfast.store.keys import KeyRow, KeyStore
from holdfast.store.sessions import SessionChange, SessionRow, SessionStore
from holdfast.store.store import Store
from holdfast.store.webhooks import Cursor, WebhookCursors

__all__ = [
    "Cursor",
    "EventPage",
    "EventRow",
    "EventStore",
    "KeyRow",
    "KeyStore",
    "SessionChange",
    "SessionRow",
    "SessionStore",
    "Store",
    "WebhookCursors",
]
