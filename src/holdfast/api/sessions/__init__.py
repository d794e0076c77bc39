"""/v1/sessions, /v1/snapshots, /v1/workspaces and /v1/strays: routes, and their requests and replies.

Read first: ``routes``, ``models``. ``api/app`` imports this package.
"""
