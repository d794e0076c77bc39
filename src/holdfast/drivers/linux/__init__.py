"""What the drivers need of the kernel: cgroups, mounts, namespaces, seccomp, ids, and processes of the host.

Read first: ``machine`` (what this kernel offers), ``seccomp``, ``cgroups``.
Drivers and ``holdfast doctor`` import this package.
"""
