"""sandbox-agent: a server in the sandbox that speaks the Agent Client Protocol over HTTP, with an agent behind it."""
