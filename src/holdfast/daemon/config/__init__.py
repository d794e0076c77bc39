"""The daemon's configuration: one frozen object, from a YAML file and ``HOLDFAST_*`` variables.

Read first: ``config`` (all settings), ``keys`` (their names and sections), ``load`` (reading them). The daemon and the
command line import this package.
"""
