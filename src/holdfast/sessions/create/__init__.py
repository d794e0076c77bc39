"""Making sessions: from a request to a row, and from a row to what its sandbox starts with.

Read first: ``creation``, ``planning`` (every choice and every refusal), ``origins`` (snapshots and forks).
The session service imports this package.
"""
