"""Coding agents inside sandboxes: one contract, one adapter per way of talking to them."""
