"""Threads: each conversation has one sandbox and, per channel, one agent that remembers, for months, whatever fails.

Read first: ``service`` (what the API calls), ``desk/mailbox`` (one thread's work), ``turns/run`` (one turn).
The API and the daemon's wiring import this package.
"""
