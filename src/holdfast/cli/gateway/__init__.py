"""Verbs of the way in: open what listens in a session, name its ports, run its services.

Read first: ``open``. Only ``cli/main`` imports this package.
"""
