"""sessions: to be described."""
