"""The daemon: its configuration, the wiring of all parts, its HTTP server, and the process itself.

Read first: ``__main__`` (the process), ``wiring/wiring`` (where objects are built), ``config/config`` (all settings).
The command line imports parts of this package, lazily; nothing else does.
"""
