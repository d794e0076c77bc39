"""Verbs for operators: the daemon, its keys, images, agents, backups, snapshots, workspaces, strays, events.

Read first: ``up``, ``doctor``, ``image``. Only ``cli/main`` imports this package.
"""
