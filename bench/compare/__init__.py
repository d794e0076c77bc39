"""compare: to be described."""
