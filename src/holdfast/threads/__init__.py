"""Conversations: each thread has one sandbox and, per channel, one agent that remembers, for months, whatever fails."""
