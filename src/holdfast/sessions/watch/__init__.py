"""What runs by itself: comparing rows with facts, ending what has expired, watching the disk, finding strays.

Read first: ``housekeeping`` (the tick, and a table: row and fact to action), ``strays``, ``disk_guard``.
The session service imports this package.
"""
