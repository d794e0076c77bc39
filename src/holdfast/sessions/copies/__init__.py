"""What outlives a session, or is made from one: snapshots, saved shells, named workspaces.

Read first: ``snapshots``, ``captures`` (a session at one moment, on disk), ``workspaces``.
The session service imports this package.
"""
