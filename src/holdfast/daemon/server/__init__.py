"""The HTTP server around the API: deadlines and bounds for connections, whole replies, open files, exposure.

Read first: ``doorkeeper``, ``whole_replies``. Only the daemon's process imports this package.
"""
