"""For receivers of webhooks: is this request from our daemon, and what does it say?"""

import hashlib
import hmac
import json
import time
from collections.abc import Mapping

from holdfast.errors import BadSignature
from holdfast.sdk.sessions.events import SessionEvent
from holdfast.sdk.sessions.results import of_wire

SIGNATURE = "holdfast-signature"


def verify_webhook(
    secret: str,
    headers: Mapping[str, str],
    body: bytes,
    tolerance_seconds: float = 300,
    *,
    now: float | None = None,
) -> SessionEvent:
    """Return the event in a request that was signed with ``secret`` not longer than ``tolerance_seconds`` ago.

    ``body`` are the bytes as they came. Raises ``BadSignature`` for everything else; answer that with 401. An event
    may come more than once: its ``Holdfast-Delivery`` header is then the same.
    """
    timestamp, signatures = _parse(headers)
    expected = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    good = [hmac.compare_digest(expected, signature) for signature in signatures]  # all of them, in constant time
    if not any(good):
        raise BadSignature("the webhook request is not signed with this secret")
    age = (time.time() if now is None else now) - timestamp
    if abs(age) > tolerance_seconds:
        raise BadSignature(f"the webhook request was signed {age:.0f} s ago; a clock is wrong, or it is a repetition")
    try:
        return of_wire(SessionEvent, json.loads(body))
    except (ValueError, TypeError, KeyError) as error:
        raise BadSignature(f"the webhook request is signed, but holds no event: {type(error).__name__}") from None


def _parse(headers: Mapping[str, str]) -> tuple[int, list[str]]:
    """Read the time and the signatures: there are several where a secret is being changed."""
    values = [value for name, value in headers.items() if name.lower() == SIGNATURE]
    parts = [part.strip().partition("=") for part in (values[0].split(",") if len(values) == 1 else [])]
    times = [value for name, _, value in parts if name == "t" and value.isascii() and value.isdigit()]
    signatures = [value for name, _, value in parts if name == "v1" and value.isascii()]
    if len(times) != 1 or len(times[0]) > 15 or not signatures:
        raise BadSignature("the webhook request has no Holdfast-Signature header, or one that makes no sense")
    return int(times[0]), signatures
