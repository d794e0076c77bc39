"""Asking candidates, one after the other, until one begins to answer.

Read first: ``asker``, ``request_plan`` (the request for one candidate), ``attempt``.
Only the model proxy imports this package.
"""
