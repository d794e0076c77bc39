"""Alembic's scripts, shipped with the package. Run by ``holdfast.store.database.migrate``, never by hand."""
