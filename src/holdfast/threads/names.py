"""Names of threads: whose, and which. A key is opaque but for its first part, which says the platform."""

import re
from dataclasses import dataclass, field
from typing import Final

from holdfast.callers.ceilings import NO_CEILINGS, Ceilings
from holdfast.callers.types import Caller
from holdfast.errors import BadInput, ThreadNotFound
from holdfast.vocabulary.thread_keys import KEY_PATTERN, check_key

MAX_CHANNEL: Final = 128
MAX_MESSAGE_ID: Final = 200
DEFAULT_CHANNEL: Final = "default"

_KEY = re.compile(KEY_PATTERN)
_MESSAGE_ID = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class ThreadRef:
    """One thread, by its name. Keys of different owners have nothing to do with each other."""

    owner: str
    key: str
    max_sessions: int | None = field(default=None, compare=False)
    """How many sessions whoever asks may have."""
    ceilings: Ceilings = field(default=NO_CEILINGS, compare=False)
    """The most that its sandbox may have if whoever asks makes it."""

    @classmethod
    def of(cls, key: str, caller: Caller, owner: str | None = None) -> "ThreadRef":
        """Return the thread that a caller means: one of his own or, if he sees all, of the ``owner`` he names."""
        if owner is not None and owner != caller.owner and not caller.sees_all:
            raise ThreadNotFound(f"there is no thread {check_key(key)}")
        return cls(owner or caller.owner, check_key(key), caller.max_sessions, caller.ceilings)


def check_channel(channel: str) -> str:
    if len(channel) > MAX_CHANNEL or not _KEY.fullmatch(channel):
        raise BadInput(f"channel: 1 to {MAX_CHANNEL} letters, digits and . _ : @ + = ~ - such as telegram:123")
    return channel


def check_message_id(message_id: str) -> str:
    if len(message_id) > MAX_MESSAGE_ID or not _MESSAGE_ID.fullmatch(message_id):
        raise BadInput(f"id: 1 to {MAX_MESSAGE_ID} printable ASCII characters without spaces, chosen by you")
    return message_id
