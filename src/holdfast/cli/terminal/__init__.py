"""What verbs need of a terminal: raw screens, typed lines, progress, followed output, Ctrl-C.

Read first: ``screen``, ``typed_lines``. Only the command line imports this package.
"""
