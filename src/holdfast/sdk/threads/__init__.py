"""A thread as the caller holds it: messages, replies, events.

Read first: ``thread``, ``reply``, ``results``. Only the SDK imports this package; users import ``holdfast.sdk``.
"""
