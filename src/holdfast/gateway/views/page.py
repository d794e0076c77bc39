"""The HTML of a view, and the policy that it is sent with: its own files, its own WebSocket, and nothing else.

The address is in no part of it, so nothing of a request appears here but the host name, which is one of ours.
"""

import secrets
from collections.abc import Iterable
from importlib import resources
from string import Template

from holdfast.gateway.pages import StaticPage
from holdfast.gateway.pages.assets import Assets


class ViewPage:
    def __init__(self, name: str, assets: Assets) -> None:
        self._base = assets.base
        self._html = Template((resources.files("holdfast.gateway.pages") / "app" / f"{name}.html").read_text())

    def render(self, host: str, embedders: Iterable[str]) -> StaticPage:
        """Return the page for a ``Host``. Pages of the ``embedders`` may show it in a frame."""
        nonce = secrets.token_urlsafe(16)
        body = self._html.substitute(base=self._base, nonce=nonce).encode()
        policy = (
            "default-src 'none'",
            "script-src 'self'",
            # The terminal writes style elements of its own, and colours as attributes.
            f"style-src 'self' 'nonce-{nonce}'",
            "style-src-attr 'unsafe-inline'",
            "img-src 'self' data: blob:",
            f"connect-src 'self' ws://{host} wss://{host}",
            "base-uri 'none'",
            "form-action 'none'",
            " ".join(("frame-ancestors 'self'", *embedders)),
            "require-trusted-types-for 'script'",
        )
        headers = (
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-length", str(len(body)).encode()),
            (b"content-security-policy", "; ".join(policy).encode()),
            (b"referrer-policy", b"no-referrer"),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), clipboard-read=()"),
        )
        return StaticPage(body, headers)
