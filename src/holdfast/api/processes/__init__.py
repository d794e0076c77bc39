"""Background processes, terminals and ports of a session.

Read first: ``routes``, ``terminal``, ``ports``. ``api/app`` imports this package.
"""
