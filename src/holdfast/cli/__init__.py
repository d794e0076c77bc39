"""The ``holdfast`` command: one file per verb, on the SDK."""
