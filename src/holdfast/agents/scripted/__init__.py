"""An agent that does what the prompt's text says, line by line: for tests, demonstrations and a first try."""
