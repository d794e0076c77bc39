"""Reading a question: how large it may be, how fast, how much memory it takes, and which model it names.

Read first: ``intake``, ``question``, ``weight``. Only the model proxy imports this package.
"""
