"""Carrying requests and WebSockets into sandboxes: connections, headers, answers, frames.

Read first: ``http`` (one request), ``websocket``, ``headers`` (what goes in and comes out).
The gateway alone imports this package.
"""
