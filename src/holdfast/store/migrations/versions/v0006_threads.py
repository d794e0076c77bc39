"""Threads: conversations with their channels, messages, turns, events, requests and files; and the nodes."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TEXT as PG_TEXT

revision = "0006"
down_revision = "0005"

ID_TEXT = sa.Text().with_variant(PG_TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    _threads()
    _messages()
    _turns()
    _files()
    op.create_table(
        "nodes",
        sa.Column("id", ID_TEXT, nullable=False),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("heartbeat_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_nodes"),
    )


def downgrade() -> None:
    for table in (
        "nodes",
        "thread_files",
        "thread_requests",
        "thread_events",
        "turns",
        "messages",
        "thread_channels",
        "threads",
    ):
        op.drop_table(table)


def _partial(name: str, table: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


def _threads() -> None:
    op.create_table(
        "threads",
        sa.Column("id", ID_TEXT, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("key", ID_TEXT, nullable=False),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("session_id", ID_TEXT),
        sa.Column("incarnation", sa.BigInteger, nullable=False),
        sa.Column("sleep_state", sa.Text, nullable=False),
        sa.Column("preview_url", sa.Text),
        sa.Column("preview_token", sa.Text),
        sa.Column("preview_expires_at", sa.Double),
        sa.Column("resume_failures", sa.BigInteger, nullable=False),
        sa.Column("last_error", sa.Text),
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_expires_at", sa.Double),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("inbox", sa.BigInteger, nullable=False),
        sa.Column("last_activity_at", sa.Double, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.Column("deleted_at", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_threads"),
        sa.CheckConstraint(
            "sleep_state IN ('awake', 'paused', 'hibernated', 'none')", name=op.f("ck_threads_sleep_state")
        ),
    )
    _partial("uq_threads_owner_key", "threads", ["owner", "key"], "deleted_at IS NULL", unique=True)
    _partial("ix_threads_lease_owner", "threads", ["lease_owner"], "lease_owner IS NOT NULL")
    _partial("ix_threads_deleted_at", "threads", ["deleted_at"], "deleted_at IS NOT NULL")
    op.create_index("ix_threads_last_activity_at_id", "threads", ["last_activity_at", "id"])
    op.create_index("ix_threads_owner_last_activity_at_id", "threads", ["owner", "last_activity_at", "id"])
    op.create_index("ix_threads_sleep_state_last_activity_at", "threads", ["sleep_state", "last_activity_at"])
    op.create_index("ix_threads_session_id", "threads", ["session_id"])
    op.create_table(
        "thread_channels",
        sa.Column("thread_id", ID_TEXT, nullable=False),
        sa.Column("channel", ID_TEXT, nullable=False),
        sa.Column("agent_session_id", sa.Text),
        sa.Column("agent_status", sa.Text, nullable=False),
        sa.Column("title", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("thread_id", "channel", name="pk_thread_channels"),
    )


def _messages() -> None:
    op.create_table(
        "messages",
        sa.Column("thread_id", ID_TEXT, nullable=False),
        sa.Column("id", ID_TEXT, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("channel", ID_TEXT, nullable=False),
        sa.Column("author", sa.Text),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("attachments", sa.Text, nullable=False),
        sa.Column("model", sa.Text),
        sa.Column("mode", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("turn_id", ID_TEXT),
        sa.Column("seq", sa.BigInteger),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("thread_id", "id", name="pk_messages"),
        sa.UniqueConstraint("thread_id", "position", name="uq_messages_thread_id_position"),
        sa.CheckConstraint("mode IN ('queue', 'steer', 'collect')", name=op.f("ck_messages_mode")),
        sa.CheckConstraint(
            "status IN ('queued', 'in_turn', 'done', 'failed', 'canceled')", name=op.f("ck_messages_status")
        ),
    )
    op.create_index("ix_messages_turn_id", "messages", ["turn_id"])
    _partial("ix_messages_queued", "messages", ["thread_id", "position"], "status = 'queued'")


def _turns() -> None:
    op.create_table(
        "turns",
        sa.Column("id", ID_TEXT, nullable=False),
        sa.Column("thread_id", ID_TEXT, nullable=False),
        sa.Column("channel", ID_TEXT, nullable=False),
        sa.Column("prompt", sa.Text, nullable=False),
        sa.Column("attachments", sa.Text, nullable=False),
        sa.Column("model", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("accepted", sa.Boolean, nullable=False),
        sa.Column("agent_session_id", sa.Text),
        sa.Column("cursor", sa.Text, nullable=False),
        sa.Column("stop_reason", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("attempts", sa.BigInteger, nullable=False),
        sa.Column("artifacts", sa.Text, nullable=False),
        sa.Column("answer", sa.Text),
        sa.Column("reverted", sa.Boolean, nullable=False),
        sa.Column("first_seq", sa.BigInteger, nullable=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("ended_at", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_turns"),
        sa.CheckConstraint(
            "state IN ('queued', 'preparing', 'prompted', 'running', 'collecting', 'ended')",
            name=op.f("ck_turns_state"),
        ),
    )
    op.create_index("ix_turns_thread_id_first_seq", "turns", ["thread_id", "first_seq"])
    _partial("uq_turns_unended", "turns", ["thread_id", "channel"], "state <> 'ended'", unique=True)
    op.create_table(
        "thread_events",
        sa.Column("thread_id", ID_TEXT, nullable=False),
        sa.Column("seq", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("turn_id", ID_TEXT),
        sa.Column("channel", ID_TEXT, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("thread_id", "seq", name="pk_thread_events"),
    )
    op.create_table(
        "thread_requests",
        sa.Column("id", ID_TEXT, nullable=False),
        sa.Column("thread_id", ID_TEXT, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("done_at", sa.Double),
        sa.Column("result", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_thread_requests"),
    )
    op.create_index("ix_thread_requests_thread_id", "thread_requests", ["thread_id"])
    _partial("ix_thread_requests_open", "thread_requests", ["thread_id", "at"], "done_at IS NULL")


def _files() -> None:
    op.create_table(
        "thread_files",
        sa.Column("id", ID_TEXT, nullable=False),
        sa.Column("thread_id", ID_TEXT, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("message_id", ID_TEXT),
        sa.Column("turn_id", ID_TEXT),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_thread_files"),
        sa.CheckConstraint("kind IN ('upload', 'artifact')", name=op.f("ck_thread_files_kind")),
    )
    op.create_index("ix_thread_files_thread_id_created_at", "thread_files", ["thread_id", "created_at"])
    op.create_index("ix_thread_files_turn_id", "thread_files", ["turn_id"])
    _partial("ix_thread_files_unused", "thread_files", ["created_at"], "kind = 'upload' AND message_id IS NULL")
