"""A driver in memory, for tests: it fails, hangs and loses sandboxes on demand.

Read first: ``driver``, ``faults`` (how a test orders a failure), ``runner`` (speaks the real protocol).
Tests and the conformance suites import this package.
"""
