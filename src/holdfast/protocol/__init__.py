"""What host and runner say to each other. Standard library only, no I/O: both ends import it."""
