"""The image ``host``: the host's own system directories, read-only, with an /etc made for the sandbox.

Read first: ``host``, ``etc`` (which files are shown), ``packages`` (what apt needs).
``images/store`` and the builder import this package.
"""
