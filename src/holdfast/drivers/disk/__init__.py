"""Disks of sandboxes on this host: their writable space, workspaces, snapshots, and copying and removing them.

Read first: ``space`` (all that one sandbox can write to), ``disk`` (one writable disk), ``snapshot_place``.
The drivers that keep files on this host import this package. Most of it blocks, and is called in threads.
"""
