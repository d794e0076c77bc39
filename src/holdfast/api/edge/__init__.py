"""What every request passes before a route: proxies, request id and log, key and scope, size limits, failures.

Read first: ``auth``, ``access``, ``failures``. The API imports this package.
"""
