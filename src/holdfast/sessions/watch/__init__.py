"""What runs by itself: comparing rows with facts, ending what has expired, watching the disk, finding strays.

Read first: ``reconciler`` (a table: row and fact to action), ``reaper``, ``strays``.
The session service imports this package.
"""
