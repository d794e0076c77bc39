"""What calls to models have cost: one row each, kept also when the thread is gone. And what a sandbox was given."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TEXT as PG_TEXT

revision = "0007"
down_revision = "0006"

ID_TEXT = sa.Text().with_variant(PG_TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "usage",
        sa.Column("id", ID_TEXT, nullable=False),
        sa.Column("thread_id", ID_TEXT, nullable=False),
        sa.Column("thread_key", ID_TEXT, nullable=False),
        sa.Column("owner", ID_TEXT, nullable=False),
        sa.Column("channel", ID_TEXT, nullable=False),
        sa.Column("turn_id", ID_TEXT),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("status", sa.BigInteger, nullable=False),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("cost_usd", sa.Double),
        sa.Column("first_byte_seconds", sa.Double),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("day", ID_TEXT, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_usage"),
    )
    op.create_index("ix_usage_turn_id", "usage", ["turn_id"])
    op.create_index("ix_usage_thread_id", "usage", ["thread_id"])
    op.create_index("ix_usage_owner_day", "usage", ["owner", "day"])
    op.create_index("ix_usage_owner_thread_key_day", "usage", ["owner", "thread_key", "day"])
    op.create_index("ix_usage_day", "usage", ["day"])
    op.create_table(
        "usage_totals",
        sa.Column("whose", ID_TEXT, nullable=False),
        sa.Column("month", ID_TEXT, nullable=False),
        sa.Column("cost_usd", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("whose", "month", name="pk_usage_totals"),
    )
    op.add_column("threads", sa.Column("workspace", sa.Text))


def downgrade() -> None:
    op.drop_column("threads", "workspace")
    op.drop_table("usage_totals")
    op.drop_table("usage")
