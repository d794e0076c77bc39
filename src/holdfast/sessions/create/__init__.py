"""Making sessions: from a request to a session that has no row yet, and from there to its row.

Read first: ``creation`` (the order of the steps), ``planning`` (every choice and every refusal).
The session service imports this package.
"""
