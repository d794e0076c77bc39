"""Passing an answer on: as a stream or whole, translated where needed, with secrets redacted and usage read.

Read first: ``passage``, ``translation``, ``refusals``; usage, end and errors are read by ``broker/dialects``.
Only the model proxy imports this package.
"""
