"""How an answer looks in each dialect: one file each, each a ``base.Voice``."""
