"""The broker: it lets sandboxes out, to model providers, git servers and allowed hosts, and holds the keys for them.

Read first: ``door`` (where requests of sandboxes arrive), ``models/proxy`` (models), ``egress/proxy`` (allowed hosts).
Threads and the daemon's wiring import this package; it knows sessions, and nothing of threads.
"""
