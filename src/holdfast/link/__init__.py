"""The host's side of links: accept runners, call them, take their streams, survive their reconnects."""
