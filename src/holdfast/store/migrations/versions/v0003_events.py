"""The events of sessions, the counter that numbers them, and how far each webhook has been told."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TEXT as PG_TEXT

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    log = op.create_table(
        "event_log",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("pruned_through", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_event_log"),
        sa.CheckConstraint("id = 1", name=op.f("ck_event_log_one_row")),
    )
    op.bulk_insert(log, [{"id": 1, "last_seq": 0, "pruned_through": 0}])
    op.create_table(
        "session_events",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text().with_variant(PG_TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("owner", sa.Text),
    )
    op.create_index("ix_session_events_session_id_seq", "session_events", ["session_id", "seq"])
    op.create_table(
        "webhook_cursors",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("failures", sa.BigInteger, nullable=False),
        sa.Column("next_try_at", sa.Double, nullable=False),
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_expires_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_cursors"),
    )


def downgrade() -> None:
    op.drop_table("webhook_cursors")
    op.drop_table("session_events")
    op.drop_table("event_log")
