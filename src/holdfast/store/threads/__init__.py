"""Rows of threads: their messages, turns, events, files, leases and requests.

Read first: ``threads`` (look-ups and guarded changes), ``turns`` (how far a turn has come), ``guard`` (what every write
has in common). Only the store and the thread service import this package.
"""
