"""OpenAI's chat completions, and those of everybody who has copied them."""
