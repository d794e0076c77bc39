"""Threads: each conversation has one sandbox and, per channel, one agent that remembers, for months, whatever fails.

Read first: ``service`` (what the API calls), ``machine`` (states as tables), ``desk/mailbox``, ``turns/run``.
The API and the daemon's wiring import this package.
"""
