"""An agent in memory, for tests on the fake driver: it fails, hangs, forgets and dies on demand.

Read first: ``agent``, ``world`` (where fake agents live). Tests import this package.
"""
