"""Snapshots of sessions, and workspaces that outlive them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TEXT as PG_TEXT

revision = "0005"
down_revision = "0004"

_ID = sa.Text().with_variant(PG_TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "snapshots",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", _ID, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("image", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("driver", sa.Text, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger),
        sa.Column("idempotency_key", sa.Text),
        sa.Column("idempotency_hash", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_snapshots"),
        sa.CheckConstraint("status IN ('writing', 'ready', 'deleting')", name=op.f("ck_snapshots_status")),
        sa.CheckConstraint("kind IN ('files', 'memory')", name=op.f("ck_snapshots_kind")),
        sa.UniqueConstraint("owner", "name", name="uq_snapshots_owner_name"),
        sa.UniqueConstraint("owner", "idempotency_key", name="uq_snapshots_owner_idempotency_key"),
    )
    op.create_table(
        "workspaces",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", _ID, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("disk_mb", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("last_used_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workspaces"),
        sa.CheckConstraint("status IN ('ready', 'deleting')", name=op.f("ck_workspaces_status")),
        sa.UniqueConstraint("owner", "name", name="uq_workspaces_owner_name"),
    )
    op.add_column("sessions", sa.Column("snapshot_id", sa.Text))
    op.add_column("sessions", sa.Column("workspace_id", sa.Text))
    op.create_index("ix_sessions_snapshot_id_status", "sessions", ["snapshot_id", "status"])
    op.create_index("ix_sessions_workspace_id_status", "sessions", ["workspace_id", "status"])


def downgrade() -> None:
    op.drop_index("ix_sessions_workspace_id_status", "sessions")
    op.drop_index("ix_sessions_snapshot_id_status", "sessions")
    op.drop_column("sessions", "workspace_id")
    op.drop_column("sessions", "snapshot_id")
    op.drop_table("workspaces")
    op.drop_table("snapshots")
