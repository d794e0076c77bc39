"""The host's own network: which addresses nobody may reach, which are internal, and how names are looked up.

Read first: ``addresses`` (the one list of forbidden addresses), ``names`` (the resolver), ``outside`` (HTTP clients of
the daemon itself). Everything on the host may import this package.
"""
