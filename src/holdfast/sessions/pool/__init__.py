"""The warm pool: sandboxes that wait to become sessions.

Read first: ``pool`` (how many of which kind; pure), ``keeper`` (fills it and gives out), ``warmth`` (what a pooled
sandbox is made ready for). The session service and the thread service import this package.
"""
