"""When a thread's sandbox was last resumed, destroyed, and seen to be well."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

NAMES = ("resumed_at", "destroyed_at", "healthy_at")


def upgrade() -> None:
    for name in NAMES:
        op.add_column("threads", sa.Column(name, sa.Double))


def downgrade() -> None:
    for name in reversed(NAMES):
        op.drop_column("threads", name)
