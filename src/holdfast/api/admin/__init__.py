"""Routes about the daemon itself: images, keys, events, health, metrics and the documentation page.

Read first: ``system``, ``keys``, ``events``. ``api/app`` imports this package.
"""
