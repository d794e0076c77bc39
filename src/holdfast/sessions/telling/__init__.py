"""What the world is told about sessions: events, webhooks and metrics.

Read first: ``event_kinds`` (the list), ``events`` (followers), ``webhooks`` (delivery, with retries).
The session service, the thread service and the API import this package.
"""
