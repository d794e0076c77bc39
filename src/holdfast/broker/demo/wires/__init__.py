"""How an answer looks in each dialect: one file each, with the same four functions as ``base.Voice`` has."""
