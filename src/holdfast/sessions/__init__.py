"""Sessions: their states, the service that acts on them, and what watches over them.

Read first: ``session`` (the noun), ``service`` (what the API calls), ``life`` and ``sleep`` (the steps between rows,
drivers and links); ``records/machine`` has the states. Agents, the broker, threads and the API import this package.
"""
