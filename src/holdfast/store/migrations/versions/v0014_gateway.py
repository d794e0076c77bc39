"""Links, visits and tickets of the gateway, and named tunnels."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TEXT as PG_TEXT

revision = "0014"
down_revision = "0013"

ID_TEXT = sa.Text().with_variant(PG_TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "gateway_links",
        sa.Column("id", ID_TEXT, nullable=False),
        sa.Column("session_id", ID_TEXT, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("name", sa.Text),
        sa.Column("public", sa.Boolean, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("secret_hash", ID_TEXT, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("used_at", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_gateway_links"),
        sa.UniqueConstraint("secret_hash", name="uq_gateway_links_secret_hash"),
    )
    op.create_index("ix_gateway_links_session_id", "gateway_links", ["session_id"])
    op.create_index("ix_gateway_links_expires_at", "gateway_links", ["expires_at"])
    op.create_table(
        "gateway_visits",
        sa.Column("id", ID_TEXT, nullable=False),
        sa.Column("session_id", ID_TEXT, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("link_id", ID_TEXT),
        sa.Column("key_id", sa.Text),
        sa.Column("visitor", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_gateway_visits"),
    )
    for column in ("session_id", "link_id", "expires_at"):
        op.create_index(f"ix_gateway_visits_{column}", "gateway_visits", [column])
    op.create_table(
        "gateway_tickets",
        sa.Column("id", ID_TEXT, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_gateway_tickets"),
    )
    op.create_index("ix_gateway_tickets_expires_at", "gateway_tickets", ["expires_at"])
    op.create_table(
        "gateway_tunnels",
        sa.Column("session_id", ID_TEXT, nullable=False),
        sa.Column("name", ID_TEXT, nullable=False),
        sa.Column("port", sa.Integer, nullable=False),
        sa.Column("host", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("session_id", "name", name="pk_gateway_tunnels"),
    )


def downgrade() -> None:
    for table in ("gateway_tunnels", "gateway_tickets", "gateway_visits", "gateway_links"):
        op.drop_table(table)
