"""What routes share: kinds of text, streams of events, large replies, WebSockets, common parameters.

Read first: ``common``, ``sse``, ``streaming``. The API imports this package.
"""
