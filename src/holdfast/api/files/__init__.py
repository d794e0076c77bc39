"""/v1/sessions/{id}/fs: files and folders of a session, as JSON, as streams, as parts, and by signed links.

Read first: ``routes``, ``content``, ``entries``. ``api/app`` imports this package.
"""
