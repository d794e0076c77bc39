"""Who works on a thread: mailboxes, their leases, and what is asked of whoever holds one.

Read first: ``mailbox``, ``office`` (all mailboxes of this daemon), ``errands`` (requests to the holder of a lease).
Only the thread service imports this package.
"""
