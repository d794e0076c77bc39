"""What outlives a session, or is made from one: snapshots, saved shells, named workspaces.

Read first: ``copying`` (a session at one moment, on disk, and sessions made of it), ``snapshots``, ``workspaces``.
The session service imports this package.
"""
