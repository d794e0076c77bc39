"""Records: what the daemon keeps, as frozen, typed data. One shape from the store up to the API.

Pure: no I/O and no SQL. The store reads and writes these; services pass them on; the API turns them into JSON.

Read first: ``machine`` (the states of a session as one table), ``sessions`` and ``spec`` (a session and its choices),
``threads`` (threads, messages, turns). Everything on the host may import this package.
"""
