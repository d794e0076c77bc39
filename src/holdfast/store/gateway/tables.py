"""The tables of the gateway, as data."""

import sqlalchemy as sa

from holdfast.records.gateway import HostHeader
from holdfast.store.tables import ID_TEXT, Word, metadata

links = sa.Table(
    "gateway_links",
    metadata,
    sa.Column("id", ID_TEXT, primary_key=True),
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
    sa.UniqueConstraint("secret_hash"),
    sa.Index(None, "session_id"),
    sa.Index(None, "expires_at"),
)

visits = sa.Table(
    "gateway_visits",
    metadata,
    sa.Column("id", ID_TEXT, primary_key=True),
    sa.Column("session_id", ID_TEXT, nullable=False),
    sa.Column("label", sa.Text, nullable=False),
    sa.Column("link_id", ID_TEXT),
    sa.Column("key_id", sa.Text),
    sa.Column("visitor", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Index(None, "session_id"),
    sa.Index(None, "link_id"),
    sa.Index(None, "expires_at"),
)

tickets = sa.Table(
    "gateway_tickets",
    metadata,
    sa.Column("id", ID_TEXT, primary_key=True),
    sa.Column("key_id", sa.Text, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Index(None, "expires_at"),
)

tunnels = sa.Table(
    "gateway_tunnels",
    metadata,
    sa.Column("session_id", ID_TEXT, primary_key=True),
    sa.Column("name", ID_TEXT, primary_key=True),
    sa.Column("port", sa.Integer, nullable=False),
    sa.Column("host", Word(HostHeader)),
    sa.Column("created_at", sa.Double, nullable=False),
)
