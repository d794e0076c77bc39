"""The egress proxy: plain HTTP and CONNECT from a sandbox to the hosts that its policy allows, and nowhere else.

Read first: ``egress`` (one proxy per session), ``proxy`` (the protocol and the checks), ``upstream`` (from a name to a
checked connection). The daemon's wiring imports this package.
"""
