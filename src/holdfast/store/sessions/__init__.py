"""Rows of sessions, snapshots and workspaces, with every guard that keeps two daemons from both winning.

Read first: ``sessions``, ``rows``, ``snapshots``. Only the store and the session service import this package.
"""
