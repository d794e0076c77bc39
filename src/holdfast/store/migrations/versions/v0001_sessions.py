"""The sessions table."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TEXT as PG_TEXT

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text().with_variant(PG_TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("image", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("driver", sa.Text, nullable=False),
        sa.Column("handle", sa.Text),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("cwd", sa.Text, nullable=False),
        sa.Column("ttl_seconds", sa.BigInteger, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_expires_at", sa.Double),
        sa.Column("idempotency_key", sa.Text),
        sa.Column("idempotency_hash", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("last_activity_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
        sa.UniqueConstraint("idempotency_key", name="uq_sessions_idempotency_key"),
        sa.CheckConstraint(
            "status IN ('creating', 'active', 'pausing', 'paused', 'resuming', 'destroying', 'destroyed', 'error')",
            name=op.f("ck_sessions_status"),
        ),
    )
    op.create_index("ix_sessions_status_id", "sessions", ["status", "id"])
    op.create_index("ix_sessions_status_expires_at", "sessions", ["status", "expires_at"])
    op.create_index("ix_sessions_status_updated_at", "sessions", ["status", "updated_at"])


def downgrade() -> None:
    op.drop_table("sessions")
