"""Verbs that act on threads, and the talk with an agent in a terminal.

Read first: ``chat``, ``talk``, ``screen``. Only ``cli/main`` imports this package.
"""
