"""The runner's connections: to the host, from ports inside the sandbox, and bulk transfers of files.

Read first: ``control`` (the control connection and its reconnects), ``listeners`` (the way out to the broker), ``bulk``
(work on files in a forked child). Only the runner imports this package. Standard library only.
"""
