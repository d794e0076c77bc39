"""Benchmarks of the way in: requests and WebSockets to programs in a sandbox."""
