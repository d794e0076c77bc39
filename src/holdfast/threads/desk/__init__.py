"""Who works on a thread: mailboxes, their leases, and what is asked of whoever holds one.

Read first: ``mailbox``, ``thread`` (what it works on), ``errands`` and ``work`` (requests to the holder of a lease).
Only the thread service imports this package.
"""
