"""Our own pages at the addresses of sessions: a terminal, and a desktop.

Each is a page that stays the same while its WebSocket comes and goes: over a restart of the daemon, and over a sleep of
the session. A visitor gets in as to any other address; neither the page nor its WebSocket asks for more.

Read first: ``views``, then ``terminal`` and ``desktop``. ``gateway`` imports this package.
"""
