"""The daemon's configuration: one frozen object, from a YAML file and ``HOLDFAST_*`` variables.

Read first: ``config`` (all settings), ``types`` (what several settings use). The daemon and the command line import
this package.
"""
