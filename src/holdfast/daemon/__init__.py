"""The daemon: its configuration, its keys, the wiring of all parts, and the process itself."""
