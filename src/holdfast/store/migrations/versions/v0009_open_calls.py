"""Calls to models that are under way, so that one whose daemon is killed is in the books all the same."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TEXT as PG_TEXT

revision = "0009"
down_revision = "0008"

ID_TEXT = sa.Text().with_variant(PG_TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "open_calls",
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
        sa.Column("id", ID_TEXT, nullable=False),
        sa.Column("node", ID_TEXT, nullable=False),
        sa.Column("noted_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_open_calls"),
    )


def downgrade() -> None:
    op.drop_table("open_calls")
