"""A session's network: its policy, the patterns of allowed hosts, and its ways out to the broker.

Read first: ``policy``, ``host_pattern``, ``ways_out``. The session service and the broker import this package.
"""
