"""The model proxy: from agents in sandboxes to model providers, within budgets, without a key inside.

A call goes through ``limits`` (may it?), ``intake`` (read the question), ``asking`` (candidates, one after the other),
``answering`` (pass the answer on) and ``ledger`` (write down what it cost); ``providers`` says who can be asked.

Read first: ``proxy`` (the whole way), ``asking/asker``, ``answering/passage``.
Threads and the daemon's wiring import this package.
"""
