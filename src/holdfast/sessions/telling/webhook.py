"""One webhook: whom to tell, of what, and what the request looks like. Pure; the sending is in ``webhooks.py``."""

import hashlib
import hmac
import json
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlsplit

from holdfast.records.events import EventRow

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Webhook:
    """A receiver. ``kinds``: only these events; None is all."""

    url: str
    secret: str = field(repr=False)
    kinds: Collection[str] | None = None

    @property
    def id(self) -> str:
        """What its cursor is kept under: the same receiver goes on where it was, with whatever secret and kinds."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:32]

    @property
    def place(self) -> str:
        """The URL as it may be logged: without user, password and query."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{self.host}{parts.path}"

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc.rpartition("@")[2]


def body(event: EventRow) -> bytes:
    """Return the event as it is sent: the same bytes on every try."""
    at = datetime.fromtimestamp(event.at, UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
    told: dict[str, object] = {"seq": event.seq, "kind": event.kind, "session_id": event.session_id or None, "at": at}
    if event.thread_id is not None:
        told |= {"thread_id": event.thread_id, "thread_key": event.thread_key}
    told["data"] = event.data
    return json.dumps(told, separators=(",", ":")).encode()


def headers(webhook: Webhook, event: EventRow, content: bytes, now: float) -> Mapping[str, str]:
    return {
        "Content-Type": "application/json",
        "User-Agent": "holdfast-webhook",
        "Holdfast-Event": event.kind,
        "Holdfast-Delivery": delivery_id(webhook, event),
        "Holdfast-Signature": signature(webhook.secret, int(now), content),
    }


def signature(secret: str, timestamp: int, content: bytes) -> str:
    """The time is signed too: a recorded request is of no use later."""
    signed = hmac.new(secret.encode(), f"{timestamp}.".encode() + content, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={signed}"


def delivery_id(webhook: Webhook, event: EventRow) -> str:
    """The same on every try, so that a receiver knows what it has seen. Ids of sessions make it unique everywhere."""
    parts = (webhook.id, str(event.seq), event.thread_id or event.session_id, event.kind, repr(event.at))
    return "dlv_" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def retry_seconds(failures: int) -> float:
    """How long to wait after so many failures in a row: twice as long each time, and never all at the same moment."""
    longest = min(FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 30), LONGEST_RETRY_SECONDS)
    return longest * random.uniform(0.75, 1.0)  # noqa: S311
