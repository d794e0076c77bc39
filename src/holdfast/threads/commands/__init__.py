"""Commands on a thread's agent: diff, review, slash commands, models, a new conversation.

Read first: ``commands``, ``git_diff``. Only the thread service imports this package.
"""
