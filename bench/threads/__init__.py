"""threads: to be described."""
