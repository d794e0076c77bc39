"""Keys of threads, as the platforms' own ids make them: one per channel thread, one per user of direct messages.

A key is opaque to Holdfast but for its first part, which names the platform. What an id may hold is not ours to say, so
characters that would not fit are written as ``~`` and two hexadecimal digits per byte: two conversations never share
a key, whatever their ids look like.
"""

import re

from holdfast.errors import BadInput

MAX_KEY = 512
KEY_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._:@+=~-]*"
"""Of keys, and of channels in a thread."""

_KEY = re.compile(KEY_PATTERN)
_FOREIGN = re.compile(rb"[^A-Za-z0-9._@+=-]")


def check_key(key: str) -> str:
    """Return the key; raise ``BadInput`` if it cannot be one."""
    if len(key) > MAX_KEY or not _KEY.fullmatch(key):
        raise BadInput(
            f"key: 1 to {MAX_KEY} letters, digits and . _ : @ + = ~ - such as slack:T1:C1:1700000000.1; "
            "it begins with a letter or a digit"
        )
    return key


def platform_of(key: str) -> str:
    """Return what stands before the first colon; ``other`` where there is none."""
    head, colon, _rest = key.partition(":")
    return head if colon else "other"


def slack(team: str, channel: str, ts: str, thread_ts: str | None = None) -> str:
    """Return the key of a message in a channel: those of a thread share that of its first message."""
    return _key("slack", team, channel, thread_ts or ts)


def slack_dm(team: str, user: str) -> str:
    return _key("slack", team, "dm", user)


def discord(guild: str, thread: str) -> str:
    """Return the key of a thread; ``thread`` is its id, or that of the channel where there is none."""
    return _key("discord", guild, thread)


def discord_dm(user: str) -> str:
    return _key("discord", "dm", user)


def web(user: str, conversation: str) -> str:
    return _key("web", user, conversation)


def cli(name: str) -> str:
    return _key("cli", name)


def _key(platform: str, *ids: str) -> str:
    if not all(ids):
        raise BadInput(f"a key of {platform} is made of ids, and one of them is empty: {ids}")
    key = ":".join([platform, *(_written(one) for one in ids)])
    if len(key) > MAX_KEY:
        raise BadInput(f"a key has at most {MAX_KEY} characters, and {key[:40]}… would have {len(key)}")
    return key


def _written(part: str) -> str:
    raw = part.encode("utf-8", "surrogatepass")
    return _FOREIGN.sub(lambda found: b"~%02X" % found[0][0], raw).decode("ascii")
