"""The tables of threads, as data: with ``tables.py``, all that there is."""

import json
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from holdfast.records.threads import FileKind, MessageStatus, Mode, SleepState, TurnState
from holdfast.store.tables import ID_TEXT, ForeignText, JsonObject, Word, metadata
from holdfast.vocabulary.turn_events import StopReason


class JsonList(sa.TypeDecorator[Sequence[str]]):
    """Some texts, kept as a JSON array: the same bytes in every database."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Sequence[str] | None, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(list(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Sequence[str] | None:
        return None if value is None else tuple(json.loads(value))


def _one_of(column: str, words: type[SleepState | Mode | MessageStatus | TurnState | FileKind]) -> sa.CheckConstraint:
    return sa.CheckConstraint("{} IN ({})".format(column, ", ".join(f"'{word}'" for word in words)), name=column)


# What is true of few rows has an index of just those. SQLite uses such an index only if the query says the very same,
# with the value in its text and not as a parameter.
NOT_DELETED = "deleted_at IS NULL"
QUEUED = "status = 'queued'"
UNENDED = "state <> 'ended'"
OPEN = "done_at IS NULL"
UNUSED = "kind = 'upload' AND message_id IS NULL"


def _index(name: str, *columns: str, where: str, unique: bool = False) -> sa.Index:
    condition = sa.text(where)
    return sa.Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


threads = sa.Table(
    "threads",
    metadata,
    sa.Column("id", ID_TEXT, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("key", ID_TEXT, nullable=False),
    sa.Column("platform", sa.Text, nullable=False),
    sa.Column("agent", sa.Text, nullable=False),
    sa.Column("settings", JsonObject, nullable=False),
    sa.Column("session_id", ID_TEXT),
    sa.Column("incarnation", sa.BigInteger, nullable=False),
    sa.Column("sleep_state", Word(SleepState), nullable=False),
    sa.Column("preview_url", sa.Text),
    sa.Column("preview_token", sa.Text),
    sa.Column("preview_expires_at", sa.Double),
    sa.Column("resume_failures", sa.BigInteger, nullable=False),
    sa.Column("last_error", ForeignText),
    sa.Column("lease_owner", sa.Text),
    sa.Column("lease_expires_at", sa.Double),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("inbox", sa.BigInteger, nullable=False),
    sa.Column("last_activity_at", sa.Double, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("deleted_at", sa.Double),
    sa.Column("workspace", JsonObject),
    sa.Column("events_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("pruned_seq", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("resumed_at", sa.Double),
    sa.Column("destroyed_at", sa.Double),
    sa.Column("healthy_at", sa.Double),
    _one_of("sleep_state", SleepState),
    _index("uq_threads_owner_key", "owner", "key", unique=True, where=NOT_DELETED),
    sa.Index(None, "last_activity_at", "id"),  # page
    sa.Index(None, "owner", "last_activity_at", "id"),  # page of an owner
    sa.Index(None, "sleep_state", "last_activity_at"),  # idle
    sa.Index(None, "session_id"),  # at_work, on_node
    _index("ix_threads_lease_owner", "lease_owner", where="lease_owner IS NOT NULL"),  # release_all
    _index("ix_threads_deleted_at", "deleted_at", where="deleted_at IS NOT NULL"),  # deleted, purge
)

thread_channels = sa.Table(
    "thread_channels",
    metadata,
    sa.Column("thread_id", ID_TEXT, primary_key=True),
    sa.Column("channel", ID_TEXT, primary_key=True),
    sa.Column("agent_session_id", sa.Text),
    sa.Column("agent_status", sa.Text, nullable=False),
    sa.Column("title", ForeignText),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
)

messages = sa.Table(
    "messages",
    metadata,
    sa.Column("thread_id", ID_TEXT, primary_key=True),
    sa.Column("id", ID_TEXT, primary_key=True),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("channel", ID_TEXT, nullable=False),
    sa.Column("author", ForeignText),
    sa.Column("text", ForeignText, nullable=False),
    sa.Column("attachments", JsonList, nullable=False),
    sa.Column("model", sa.Text),
    sa.Column("mode", Word(Mode), nullable=False),
    sa.Column("status", Word(MessageStatus), nullable=False),
    sa.Column("turn_id", ID_TEXT),
    sa.Column("seq", sa.BigInteger),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    _one_of("mode", Mode),
    _one_of("status", MessageStatus),
    sa.UniqueConstraint("thread_id", "position"),
    sa.Index(None, "turn_id"),
    _index("ix_messages_queued", "thread_id", "position", where=QUEUED),
)

turns = sa.Table(
    "turns",
    metadata,
    sa.Column("id", ID_TEXT, primary_key=True),
    sa.Column("thread_id", ID_TEXT, nullable=False),
    sa.Column("channel", ID_TEXT, nullable=False),
    sa.Column("prompt", ForeignText, nullable=False),
    sa.Column("attachments", JsonList, nullable=False),
    sa.Column("model", sa.Text),
    sa.Column("state", Word(TurnState), nullable=False),
    sa.Column("accepted", sa.Boolean, nullable=False),
    sa.Column("agent_session_id", sa.Text),
    sa.Column("cursor", sa.Text, nullable=False),
    sa.Column("stop_reason", Word(StopReason)),
    sa.Column("error", JsonObject),
    sa.Column("attempts", sa.BigInteger, nullable=False),
    sa.Column("artifacts", JsonList, nullable=False),
    sa.Column("answer", ForeignText),
    sa.Column("reverted", sa.Boolean, nullable=False),
    sa.Column("first_seq", sa.BigInteger, nullable=False),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("started_at", sa.Double),
    sa.Column("ended_at", sa.Double),
    _one_of("state", TurnState),
    sa.Index(None, "thread_id", "first_seq"),
    _index("uq_turns_unended", "thread_id", "channel", unique=True, where=UNENDED),  # one at a time
)

thread_events = sa.Table(
    "thread_events",
    metadata,
    sa.Column("thread_id", ID_TEXT, primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("turn_id", ID_TEXT),
    sa.Column("channel", ID_TEXT, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("data", JsonObject, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)

thread_requests = sa.Table(
    "thread_requests",
    metadata,
    sa.Column("id", ID_TEXT, primary_key=True),
    sa.Column("thread_id", ID_TEXT, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("data", JsonObject, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("done_at", sa.Double),
    sa.Column("result", JsonObject),
    sa.Index(None, "thread_id"),  # purge
    _index("ix_thread_requests_open", "thread_id", "at", where=OPEN),
)

thread_files = sa.Table(
    "thread_files",
    metadata,
    sa.Column("id", ID_TEXT, primary_key=True),
    sa.Column("thread_id", ID_TEXT, nullable=False),
    sa.Column("kind", Word(FileKind), nullable=False),
    sa.Column("name", ForeignText, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("message_id", ID_TEXT),
    sa.Column("turn_id", ID_TEXT),
    sa.Column("created_at", sa.Double, nullable=False),
    _one_of("kind", FileKind),
    sa.Index(None, "thread_id", "created_at"),
    sa.Index(None, "turn_id"),
    _index("ix_thread_files_unused", "created_at", where=UNUSED),
)

nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("id", ID_TEXT, primary_key=True),
    sa.Column("started_at", sa.Double, nullable=False),
    sa.Column("heartbeat_at", sa.Double, nullable=False),
)
