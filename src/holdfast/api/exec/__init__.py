"""/v1/sessions/{id}/exec: run a command, follow one, and the short way past the framework for the plain case.

Read first: ``routes``, ``lane``, ``streams``. ``api/app`` imports this package.
"""
