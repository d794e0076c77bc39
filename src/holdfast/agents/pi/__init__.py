"""Pi, by its RPC mode: JSON lines over the pipes of a process in the sandbox."""
