"""Every agent that speaks the Agent Client Protocol over stdio: one adapter, and a table of what each needs."""
