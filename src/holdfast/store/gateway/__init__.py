"""What the gateway keeps in the database: links, visits, tickets and tunnels.

Read first: ``tables``, ``links``, ``tunnels``. Imported by the gateway and the store itself.
"""
