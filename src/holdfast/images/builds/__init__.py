"""Building images from recipes, with mmdebstrap, in namespaces where the build can do no harm.

Read first: ``recipe`` (what a recipe says), ``builder`` (the build), ``enclosure`` (what keeps it inside).
The command line imports this package; builds run in a process of their own.
"""
