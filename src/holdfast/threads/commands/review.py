"""The prompt that has an agent look at what was changed, for agents that have no review of their own."""

MAX_CHARACTERS = 200_000
"""Of the diff in the prompt; the agent can read the rest itself."""

_TASK = """Review the changes below as a careful colleague would. Do not change any file.

Say first in one sentence whether they are fit to be merged. Then list what is wrong, the worst first, each with its \
file and line, what happens because of it, and how to put it right: mistakes, cases that are not handled, security, \
missing tests. Leave out matters of taste. If nothing is wrong, say so in one line."""


def prompt(diff: str, wish: str = "") -> str:
    """``wish``: what to look at in particular."""
    text = diff if len(diff) <= MAX_CHARACTERS else diff[:MAX_CHARACTERS]
    parts = [_TASK]
    if wish.strip():
        parts.append(f"In particular: {wish.strip()}")
    if len(text) < len(diff):
        parts.append("The diff is longer than what is shown here; run git diff for the rest.")
    fence = _fence(text)
    parts.append(f"{fence}diff\n{text.rstrip()}\n{fence}")
    return "\n\n".join(parts)


def _fence(text: str) -> str:
    """Longer than any that is in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return fence
