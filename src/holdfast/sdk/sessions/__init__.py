"""A session as the caller holds it: exec, files, processes, terminals, ports, events, and copies of it.

Read first: ``session``, ``files``, ``results``. Only the SDK imports this package; users import ``holdfast.sdk``.
"""
