"""Words that the daemon, the SDK and the agents' adapters share: thread keys, turn events, model names, file places.

Standard library only. Nothing in here travels between the host and the runner; that is ``protocol``.

Read first: ``turn_events`` (what an agent's work looks like to everybody), ``thread_keys``, ``models``.
Every package outside the sandbox may import this one.
"""
