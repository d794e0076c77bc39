"""The host's side of a link: it accepts runners, calls them, takes their streams, and survives their reconnects.

Read first: ``hub`` (all links of this host), ``link`` (one session's link), ``connection`` (one accepted socket).
The session service imports this package; drivers do not call a runner themselves.
"""
