"""Which requests a visitor's cookie is good for, and which of them wake a session. Pure.

A browser sends a cookie with every request to its host, whoever caused it. So the cookie counts only for requests that
a page of the same host has made, or that the person has made by going there:

| request | with the cookie |
| --- | --- |
| WebSocket | ``Origin`` must be this host |
| any, with ``Sec-Fetch-Site`` | must be ``same-origin`` or ``none`` |
| GET that goes to a page (``Sec-Fetch-Mode: navigate``, in a tab or frame) | from anywhere |
| any, with ``Origin`` | must be this host |
| other than GET and HEAD | must have ``Origin`` or ``Sec-Fetch-Site`` |

Whoever comes with a key or a public link is no browser with a cookie, and none of this applies.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.errors import Forbidden

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_FRAMES = frozenset({"document", "iframe", "frame"})
_FOREIGN = "this request comes from another page than this host's own; open this address itself"

_ONCE = frozenset(
    {
        b"origin",
        b"authorization",
        b"x-holdfast-key",
        b"sec-fetch-site",
        b"sec-fetch-mode",
        b"sec-fetch-dest",
        b"sec-websocket-key",
    }
)

Header = tuple[bytes, bytes]
Headers = Iterable[Header]


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What the rules look at."""

    method: str
    origin: str
    """``scheme://host`` of this request itself."""
    headers: Mapping[bytes, bytes]
    """The last value of each."""
    cookies: Sequence[Header] = ()
    """All cookie headers: a proxy may have made several of one."""
    is_ambiguous: bool = False
    """A header that says who asks, or from where, came twice."""
    is_websocket: bool = False

    @property
    def is_navigation(self) -> bool:
        """Whether a person goes to a page, in a tab or a frame. A background request of a page is none."""
        if self.method not in ("GET", "HEAD") or self.is_websocket:
            return False
        mode = self.headers.get(b"sec-fetch-mode")
        if mode is None:  # an old browser
            return b"text/html" in self.headers.get(b"accept", b"")
        return mode == b"navigate" and self.headers.get(b"sec-fetch-dest", b"").decode("latin-1") in _FRAMES

    @property
    def is_in_frame(self) -> bool:
        return self.headers.get(b"sec-fetch-dest") in (b"iframe", b"frame")

    @property
    def is_unsafe(self) -> bool:
        return self.method not in SAFE and not self.is_websocket


def asked(method: str, origin: str, headers: Headers, *, is_websocket: bool = False) -> RequestFacts:
    found: dict[bytes, bytes] = {}
    cookies: list[Header] = []
    twice = False
    for name, value in headers:
        twice = twice or (name in _ONCE and name in found)
        found[name] = value
        if name == b"cookie":
            cookies.append((name, value))
    return RequestFacts(method, origin, found, cookies, twice, is_websocket)


def check_origin(request: RequestFacts) -> None:
    """Raise ``Forbidden`` for a request that a cookie is not good for."""
    origin = request.headers.get(b"origin")
    own = origin is not None and origin.decode("latin-1").lower() == request.origin
    site = request.headers.get(b"sec-fetch-site")
    if request.is_websocket:
        if not own:
            raise Forbidden(_FOREIGN)
        return
    if site is not None:
        if site not in (b"same-origin", b"none") and not _goes_to_page(request):
            raise Forbidden(_FOREIGN)
    elif origin is None and request.is_unsafe:
        raise Forbidden("a request that changes something must say where it comes from (Origin)")
    if origin is not None and not own:
        raise Forbidden(_FOREIGN)


def _goes_to_page(request: RequestFacts) -> bool:
    return request.is_navigation and b"sec-fetch-mode" in request.headers
