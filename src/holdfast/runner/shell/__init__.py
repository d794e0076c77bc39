"""The stateful shell inside a sandbox: one long-lived bash, its commands, their time limits, and its saved state.

Read first: ``shell`` (the queue and the replacement of a dead bash), ``command`` (one command on its way),
``bash_text`` (what is said to bash). Only the runner imports this package. Standard library only.
"""
