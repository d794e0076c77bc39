"""The ids of tool calls. Each provider takes others; these are taken by all."""

import hashlib
import re

_TAKEN = re.compile(r"[A-Za-z0-9_-]{1,40}")


def fitting(call_id: str) -> str:
    """The same id, or, always the same, another one in its place."""
    if _TAKEN.fullmatch(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"
