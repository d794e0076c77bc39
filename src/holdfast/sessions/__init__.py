"""Sessions: their states, the service that acts on them, and what watches over them.

Read first: ``machine`` (states and events as one table), ``service`` (what the API calls), ``lifecycle`` (the steps
between rows, drivers and links). Agents, the broker, threads and the API import this package.
"""
