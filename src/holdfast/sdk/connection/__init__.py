"""The way to the daemon: where it is, HTTP with safe retries, event streams, and answers of strangers.

Read first: ``transport``, ``discovery``, ``following``. Only the SDK imports this package.
"""
