"""Verbs that act on sessions: new, ls, exec, sh, cp, forward, sleep, wake, fork, rm, and background processes.

Read first: ``new``, ``exec``. Only ``cli/main`` imports this package.
"""
