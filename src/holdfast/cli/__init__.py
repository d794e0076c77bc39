"""The ``holdfast`` command: one file per verb, on the SDK; a verb is imported when it is asked for.

Read first: ``main`` (the list of verbs), ``common`` (options and output), ``sessions/exec`` (one verb).
Nothing imports this package.
"""
