"""Files of threads: uploads, artifacts, and spoken messages that are written down.

Read first: ``files``, ``voice``, ``whisper``. Only the thread service and the daemon's wiring import this package.
"""
