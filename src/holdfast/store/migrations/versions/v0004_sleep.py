"""How and since when a session sleeps."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("paused_as", sa.Text))
    op.add_column("sessions", sa.Column("paused_at", sa.Double))


def downgrade() -> None:
    op.drop_column("sessions", "paused_at")
    op.drop_column("sessions", "paused_as")
