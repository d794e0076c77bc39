"""Whether a call to a model may be made: allowed models, rates, budgets, and money held for calls under way.

Read first: ``gate``, ``windows``. Only the model proxy imports this package.
"""
