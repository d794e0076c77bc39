"""The tables, as data. ``migrations/`` brings a database to exactly this; a test compares the two."""

import json
from collections.abc import Mapping
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import TEXT as PG_TEXT
from sqlalchemy.engine import Dialect

from holdfast.records.copies import SnapshotStatus
from holdfast.records.machine import PausedAs, Reason, Status
from holdfast.records.spec import SessionSpec, SnapshotKind

LIVE = tuple(status for status in Status if status != Status.DESTROYED)
"""Named one by one and not as ``!= 'destroyed'``, so that an index on status can serve the query."""

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


class JsonText(sa.TypeDecorator[Mapping[str, str]]):
    """A str -> str mapping, kept as JSON in a text column: the same bytes in every database."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, str] | None, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(dict(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Mapping[str, str] | None:
        if value is None:
            return None
        decoded: dict[str, str] = json.loads(value)
        return decoded


class JsonObject(sa.TypeDecorator[Mapping[str, object]]):
    """Any JSON object, kept as text: the same bytes in every database.

    Agents tell halves of characters (an emoji that was cut through). JSON can spell them, but no reply can be written
    with them: one such event would end every stream of its thread, again and again. They become U+FFFD.
    """

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, object] | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        text = json.dumps(dict(value))
        if r"\ud" not in text:
            return text
        return json.dumps(json.loads(_whole_characters(json.dumps(dict(value), ensure_ascii=False))))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Mapping[str, object] | None:
        if value is None:
            return None
        decoded: dict[str, object] = json.loads(value)
        return decoded


class ForeignText(sa.TypeDecorator[str]):
    """Text that comes out of a sandbox: paths and messages may hold NULs and broken Unicode.

    Postgres refuses the first and both databases the second. Losing a byte of an error message is better than
    losing the row that reports the error, so such characters become U+FFFD.
    """

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or (value.isascii() and "\0" not in value):
            return value
        return _whole_characters(value).replace("\0", "\ufffd")


class Word(sa.TypeDecorator[StrEnum]):
    """A column that holds one of an enum's words: rows have the enum's member, and never a bare text."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, words: type[StrEnum]) -> None:
        super().__init__()
        self.words = words

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> StrEnum | None:
        return None if value is None else self.words(value)


class SpecText(sa.TypeDecorator[SessionSpec]):
    """A session's spec, kept as JSON; it is parsed once, when its row is read."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: SessionSpec | None, dialect: Dialect) -> str | None:
        return None if value is None else value.to_json()

    def process_result_value(self, value: str | None, dialect: Dialect) -> SessionSpec | None:
        return None if value is None else SessionSpec.from_json(value)


def _whole_characters(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# Ids must sort by byte in every database: pages depend on it, and Postgres otherwise sorts by the locale.
ID_TEXT = sa.Text().with_variant(PG_TEXT(collation="C"), "postgresql")

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("id", ID_TEXT, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False, server_default="root"),
    sa.Column("status", Word(Status), nullable=False),
    sa.Column("reason", Word(Reason)),
    sa.Column("error", ForeignText),
    sa.Column("image", sa.Text, nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("driver", sa.Text, nullable=False),
    sa.Column("handle", sa.Text),
    sa.Column("spec", SpecText, nullable=False),
    sa.Column("metadata", JsonText, nullable=False),
    sa.Column("cwd", ForeignText, nullable=False),
    sa.Column("ttl_seconds", sa.BigInteger, nullable=False),
    sa.Column("paused_as", Word(PausedAs)),
    sa.Column("paused_at", sa.Double),
    sa.Column("generation", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("lease_owner", sa.Text),
    sa.Column("lease_expires_at", sa.Double),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("idempotency_hash", sa.Text),
    sa.Column("snapshot_id", sa.Text),
    sa.Column("workspace_id", sa.Text),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Column("last_activity_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.CheckConstraint("status IN ({})".format(", ".join(f"'{status}'" for status in Status)), name="status"),
    sa.UniqueConstraint("owner", "idempotency_key"),
    sa.Index(None, "owner", "status", "id"),  # page of an owner, the count of its live rows
    sa.Index(None, "status", "id"),  # page, by_status, the count of live rows
    sa.Index(None, "status", "expires_at"),  # expired
    sa.Index(None, "status", "updated_at"),  # prune_destroyed
    sa.Index(None, "snapshot_id", "status"),  # who is being made from it
    sa.Index(None, "workspace_id", "status"),  # who holds it
)

snapshots = sa.Table(
    "snapshots",
    metadata,
    sa.Column("id", ID_TEXT, primary_key=True),
    sa.Column("name", ID_TEXT, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("status", Word(SnapshotStatus), nullable=False),
    sa.Column("kind", Word(SnapshotKind), nullable=False),
    sa.Column("session_id", sa.Text, nullable=False),
    sa.Column("image", sa.Text, nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("driver", sa.Text, nullable=False),
    sa.Column("spec", SpecText, nullable=False),
    sa.Column("size_bytes", sa.BigInteger),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("idempotency_hash", sa.Text),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.CheckConstraint("status IN ('writing', 'ready', 'deleting')", name="status"),
    sa.CheckConstraint("kind IN ('files', 'memory')", name="kind"),
    sa.UniqueConstraint("owner", "name"),
    sa.UniqueConstraint("owner", "idempotency_key"),
)

workspaces = sa.Table(
    "workspaces",
    metadata,
    sa.Column("id", ID_TEXT, primary_key=True),
    sa.Column("name", ID_TEXT, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("disk_mb", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("last_used_at", sa.Double, nullable=False),
    sa.CheckConstraint("status IN ('ready', 'deleting')", name="status"),
    sa.UniqueConstraint("owner", "name"),
)

keys = sa.Table(
    "keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", ID_TEXT, nullable=False, unique=True),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False, unique=True),
    sa.Column("max_sessions", sa.BigInteger),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("last_used_at", sa.Double),
    sa.Column("max_cpus", sa.Double),
    sa.Column("max_memory_mb", sa.BigInteger),
    sa.Column("max_pids", sa.BigInteger),
    sa.Column("max_disk_mb", sa.BigInteger),
    sa.CheckConstraint("scope IN ('read', 'use', 'admin')", name="scope"),
)

# On SQLite the number of an event is the number of its row, so that reading on from one is a walk along the table.
SEQ = sa.BigInteger().with_variant(sa.Integer, "sqlite")

event_log = sa.Table(  # one row: who adds an event takes its number from here, and holds this row until the commit
    "event_log",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("pruned_through", sa.BigInteger, nullable=False),
    sa.CheckConstraint("id = 1", name="one_row"),
)

session_events = sa.Table(
    "session_events",
    metadata,
    sa.Column("seq", SEQ, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("session_id", ID_TEXT, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("data", JsonObject, nullable=False),
    sa.Column("owner", sa.Text),
    sa.Column("thread_id", ID_TEXT),
    sa.Column("thread_key", ID_TEXT),
    sa.Index(None, "session_id", "seq"),  # the story of one session
    sa.Index(None, "thread_key", "seq"),  # and of one thread
    sa.Index(None, "thread_id", "kind", "at"),
)

webhook_cursors = sa.Table(
    "webhook_cursors",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("failures", sa.BigInteger, nullable=False),
    sa.Column("next_try_at", sa.Double, nullable=False),
    sa.Column("lease_owner", sa.Text),
    sa.Column("lease_expires_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
)
