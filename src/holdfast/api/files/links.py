"""Signed links: the right to read or write one file for a while, in a URL, for whoever has it.

Nothing is stored. A token is what it is for and an HMAC over that, so it is good in every daemon with the same secret,
and ends with its time, with its session, or with the API key of whoever made it.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable

from holdfast.errors import BadLink

_LABEL = b"holdfast file links 2"
_MAC = 32


class FileLinks:
    def __init__(self, secret: bytes, clock: Callable[[], float], is_key: Callable[[str], bool]) -> None:
        """``secret`` may have other uses: the key is derived from it for this one alone. ``is_key`` says whether there
        still is an API key with this id."""
        self._key = hmac.digest(secret, _LABEL, hashlib.sha256)
        self._clock = clock
        self._is_key = is_key

    def make(self, session_id: str, path: str, method: str, expires: int, key_id: str) -> str:
        """Return a token for ``open``; ``expires`` is Unix time, ``key_id`` the API key that asks for it."""
        claim = f"{method}\n{expires}\n{key_id}\n{session_id}\n".encode() + path.encode("utf-8", "surrogateescape")
        return base64.urlsafe_b64encode(self._mac(claim) + claim).rstrip(b"=").decode()

    def open(self, token: str, method: str) -> tuple[str, str]:
        """Return the session and the path that a token is for. Raises ``BadLink``."""
        claim = self._checked(token)
        made_for, expires, key_id, session_id, path = claim.split(b"\n", 4)
        if int(expires) <= self._clock():
            raise BadLink("this link has expired; ask whoever gave it to you for a new one")
        if method not in (("GET", "HEAD") if made_for == b"GET" else ("PUT",)):
            raise BadLink(f"this link is for {made_for.decode()} only")
        if not self._is_key(key_id.decode()):
            raise BadLink("the key that this link was made with is gone; ask for a new link")
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
