"""The default driver: any OCI runtime (crun, runc, runsc) without a daemon, as root or as an ordinary user.

Read first: ``driver``, ``config`` (from a spec to config.json), ``stage`` (what root prepares for a runtime).
Only ``drivers`` and the daemon's wiring import this package.
"""
