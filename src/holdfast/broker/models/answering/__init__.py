"""Passing an answer on: as a stream or whole, translated where needed, with secrets redacted and usage read.

Read first: ``passage``, ``reading`` (usage, end and errors), ``translation``.
Only the model proxy imports this package.
"""
