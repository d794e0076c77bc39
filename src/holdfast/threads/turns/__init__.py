"""One turn, from its prompt to its end: messages with their files, questions, quotas, and stopping agents.

Read first: ``run``, ``end`` (exactly one end, in one transaction), ``questions``.
Only the thread service imports this package.
"""
