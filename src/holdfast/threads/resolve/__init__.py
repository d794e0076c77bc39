"""From a thread to an agent that can be prompted: its sandbox, its repository, its agent, the agent's instructions.

Read first: ``resolver`` (a table of what is found and what is done), ``sandboxes``, ``briefs``.
Only the thread service imports this package.
"""
