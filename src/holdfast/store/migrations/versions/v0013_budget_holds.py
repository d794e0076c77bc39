"""Money that calls under way may still cost, so that daemons on one database keep one budget; and of which run of a
daemon a call is, so that no clock decides whether that run is over."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TEXT as PG_TEXT

revision = "0013"
down_revision = "0012"

ID_TEXT = sa.Text().with_variant(PG_TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("open_calls", sa.Column("run", ID_TEXT, nullable=False, server_default=sa.text("''")))
    op.create_table(
        "budget_holds",
        sa.Column("id", ID_TEXT, nullable=False),
        sa.Column("thread_id", ID_TEXT, nullable=False),
        sa.Column("owner", ID_TEXT, nullable=False),
        sa.Column("usd", sa.Double, nullable=False),
        sa.Column("node", ID_TEXT, nullable=False),
        sa.Column("run", ID_TEXT, nullable=False),
        sa.Column("until", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_budget_holds"),
    )
    op.create_index("ix_budget_holds_thread_id", "budget_holds", ["thread_id"])
    op.create_index("ix_budget_holds_owner", "budget_holds", ["owner"])


def downgrade() -> None:
    op.drop_table("budget_holds")
    op.drop_column("open_calls", "run")
