"""API keys: who is calling, what the caller may do, whose sessions the caller sees, and how large they may be.

Read first: ``types`` (scope, caller, key), ``ring`` (keys in memory: one hash and no query per request), ``ceilings``.
The session service and everything above it may import this package.
"""
