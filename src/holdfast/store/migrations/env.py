"""How Alembic gets its connection: ``migrate.py`` hands it one that already holds the lock and the transaction."""

from alembic import context
from sqlalchemy import Connection

from holdfast.store.tables import metadata

connection: Connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata)
context.run_migrations()
