"""Coding agents inside sandboxes: one contract, and one adapter for each way of talking to them.

Read first: ``base`` (the contract), ``registry`` (which agents a daemon offers), ``pi/adapter`` (the default agent).
Threads import this package; agents know sessions, and nothing of threads.
"""
