"""Drivers: where sessions run. ``base`` is the contract, ``conformance`` the suite that each of them passes."""
