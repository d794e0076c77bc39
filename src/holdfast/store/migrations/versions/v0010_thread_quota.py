"""How much a thread's events take, and up to which number they were forgotten because that was too much."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    for name in ("events_bytes", "pruned_seq"):
        op.add_column("threads", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    op.execute(
        "UPDATE threads SET events_bytes = (SELECT coalesce(sum(length(data)), 0) + 100 * count(*)"
        " FROM thread_events WHERE thread_events.thread_id = threads.id)"
    )


def downgrade() -> None:
    for name in ("pruned_seq", "events_bytes"):
        op.drop_column("threads", name)
