"""Google's Gemini."""
