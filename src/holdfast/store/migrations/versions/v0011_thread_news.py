"""What happens to threads is in the log of events, too: which thread, by id and by key."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TEXT as PG_TEXT

revision = "0011"
down_revision = "0010"

ID_TEXT = sa.Text().with_variant(PG_TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    for name in ("thread_id", "thread_key"):
        op.add_column("session_events", sa.Column(name, ID_TEXT))
    op.create_index("ix_session_events_thread_key_seq", "session_events", ["thread_key", "seq"])
    op.create_index("ix_session_events_thread_id_kind_at", "session_events", ["thread_id", "kind", "at"])


def downgrade() -> None:
    op.drop_index("ix_session_events_thread_id_kind_at", "session_events")
    op.drop_index("ix_session_events_thread_key_seq", "session_events")
    for name in ("thread_key", "thread_id"):
        op.drop_column("session_events", name)
