"""The most that a session may have which a key makes. Keys from before have no ceilings of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("keys", sa.Column("max_cpus", sa.Double))
    for name in ("max_memory_mb", "max_pids", "max_disk_mb"):
        op.add_column("keys", sa.Column(name, sa.BigInteger))


def downgrade() -> None:
    for name in ("max_disk_mb", "max_pids", "max_memory_mb", "max_cpus"):
        op.drop_column("keys", name)
