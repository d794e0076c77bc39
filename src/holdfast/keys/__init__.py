"""Keys: who is calling, what they may do, and whose sessions they see."""
