"""OpenCode by its own server: HTTP over the session's link, and a record of each turn that outlives every reader."""
