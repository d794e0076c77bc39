"""/v1/threads and /v1/usage: conversations, their messages, events, files, commands and costs.

Read first: ``routes``, ``events``, ``models``. ``api/app`` imports this package.
"""
