"""Signed links: the right to read or write one file for a while, in a URL, for whoever has it.

Nothing is stored. A token is what it is for and an HMAC over that, so it is good in every daemon with the same key, and
ends with its time or with its session.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable

from holdfast.errors import BadLink

_LABEL = b"holdfast file links 1"
_MAC = 32


class FileLinks:
    def __init__(self, secret: bytes, clock: Callable[[], float]) -> None:
        """``secret`` may have other uses: the key is derived from it for this one alone."""
        self._key = hmac.digest(secret, _LABEL, hashlib.sha256)
        self._clock = clock

    def make(self, session_id: str, path: str, method: str, expires: int) -> str:
        """A token for ``open``; ``expires`` is Unix time."""
        claim = f"{method}\n{expires}\n{session_id}\n".encode() + path.encode("utf-8", "surrogateescape")
        return base64.urlsafe_b64encode(self._mac(claim) + claim).rstrip(b"=").decode()

    def open(self, token: str, method: str) -> tuple[str, str]:
        """The session and the path that a token is for. Raises ``BadLink``."""
        claim = self._checked(token)
        made_for, expires, session_id, path = claim.split(b"\n", 3)
        if int(expires) <= self._clock():
            raise BadLink("this link has expired; ask whoever gave it to you for a new one")
        if method not in (("GET", "HEAD") if made_for == b"GET" else ("PUT",)):
            raise BadLink(f"this link is for {made_for.decode()} only")
        return session_id.decode(), path.decode("utf-8", "surrogateescape")

    def _checked(self, token: str) -> bytes:
        try:
            packed = base64.b64decode(token.encode() + b"=" * (-len(token) % 4), b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError):
            packed = b""
        mac, claim = packed[:_MAC], packed[_MAC:]
        if not hmac.compare_digest(mac, self._mac(claim)):
            raise BadLink("this link is not valid; check that it was copied whole")
        return claim

    def _mac(self, claim: bytes) -> bytes:
        return hmac.digest(self._key, claim, hashlib.sha256)
