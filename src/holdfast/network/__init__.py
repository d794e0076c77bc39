"""The host's own network: which addresses nobody may reach, which are internal, and what lies next to this machine."""
