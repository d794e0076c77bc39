"""From a configuration to a running application: the place where the parts are built and connected.

Read first: ``wiring``, ``threads``, ``models``. Only the daemon's process and tests import this package.
"""
