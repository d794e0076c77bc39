"""Alembic's scripts, shipped with the package. Run by ``holdfast.store.migrate``, never by hand."""
