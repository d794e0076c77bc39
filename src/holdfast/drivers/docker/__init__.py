"""The driver that makes sandboxes as containers of a Docker daemon on this machine.

Read first: ``driver``, ``config`` (from a spec to what Docker's API takes), ``client`` (the seam to Docker).
Only the daemon's wiring imports this package; ``aiodocker`` is an extra.
"""
