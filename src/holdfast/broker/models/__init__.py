"""The model proxy: the way from agents in sandboxes to model providers, within their thread's budget, without a key."""
