"""Routes for the way in: links to ports of a session, named tunnels, tickets for WebSockets.

Read first: ``links``, ``tunnels``. ``api/app`` imports this package.
"""
