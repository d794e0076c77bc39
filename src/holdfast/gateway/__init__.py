"""The way in: people and browsers reach what listens in a sandbox, at host names of their own.

A request comes in by ``dispatch``, which knows from its host name whether it is for the API or for a sandbox. One for a
sandbox goes to ``gateway``, which asks ``admission`` who it is, wakes the session where that is right, and hands it to
``proxy``, which carries it over the session's link. Nothing here opens a connection to an address that a request names.

Read first: ``gateway``, ``admission``, ``addresses``. The API and the daemon import this package.
"""
