"""The keys table, and an owner for each session. Sessions from before belong to the root key."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TEXT as PG_TEXT

revision = "0002"
down_revision = "0001"

_STATUS = sa.CheckConstraint(
    "status IN ('creating', 'active', 'pausing', 'paused', 'resuming', 'destroying', 'destroyed', 'error')",
    name="ck_sessions_status",
)


def upgrade() -> None:
    op.create_table(
        "keys",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text().with_variant(PG_TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("max_sessions", sa.BigInteger),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("last_used_at", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_keys"),
        sa.UniqueConstraint("name", name="uq_keys_name"),
        sa.UniqueConstraint("hash", name="uq_keys_hash"),
        sa.CheckConstraint("scope IN ('read', 'use', 'admin')", name=op.f("ck_keys_scope")),
    )
    # SQLite cannot drop a constraint: Alembic copies the table there, and would lose the CHECK if it were not told.
    with op.batch_alter_table("sessions", table_args=(_STATUS,)) as sessions:
        sessions.add_column(sa.Column("owner", sa.Text, nullable=False, server_default="root"))
        sessions.drop_constraint("uq_sessions_idempotency_key", type_="unique")
        sessions.create_unique_constraint("uq_sessions_owner_idempotency_key", ["owner", "idempotency_key"])
        sessions.create_index("ix_sessions_owner_status_id", ["owner", "status", "id"])


def downgrade() -> None:
    with op.batch_alter_table("sessions", table_args=(_STATUS,)) as sessions:
        sessions.drop_index("ix_sessions_owner_status_id")
        sessions.drop_constraint("uq_sessions_owner_idempotency_key", type_="unique")
        sessions.create_unique_constraint("uq_sessions_idempotency_key", ["idempotency_key"])
        sessions.drop_column("owner")
    op.drop_table("keys")
