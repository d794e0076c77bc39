"""The stateful shell inside a sandbox: one long-lived bash, its commands, their time limits, and its saved state.

Read first: ``machine`` (the phases of shell, command and report), ``shell`` (the queue and the replacement of a dead
bash), ``bash_text`` (what is said to bash). Only the runner imports this package. Standard library only.
"""
