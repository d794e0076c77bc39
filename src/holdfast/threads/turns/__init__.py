"""One turn, from its prompt to its end: steering, questions, quotas, attachments, and stopping agents.

Read first: ``run``, ``end`` (exactly one end, in one transaction), ``questions``.
Only the thread service imports this package.
"""
