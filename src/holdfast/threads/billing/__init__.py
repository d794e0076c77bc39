"""Who pays for calls to models, and which calls a thread may make.

Read first: ``books``, ``policy``. The thread service and the daemon's wiring import this package.
"""
