"""Drivers: they make, find, pause and destroy the place that a session runs in, and start the runner there.

Read first: ``base`` (the contract), ``oci/driver`` (the default driver), ``conformance`` (the suite that each driver
passes). The session service and the daemon's wiring import this package; drivers do not know the store.
"""
