"""Addresses of previews as providers give them: some hold a token, which belongs into a header."""

from typing import Final
from urllib.parse import unquote_plus, urlsplit, urlunsplit

PARAMETER: Final = "tkn"


def split_token(url: str) -> tuple[str, str | None]:
    """Return the address without its token, and the token; None if it has none.

    An address is shown, logged and sent on as ``Referer``; a token in it would go along. All else in the address stays
    as it was.
    """
    parts = urlsplit(url)
    left: list[str] = []
    token: str | None = None
    for piece in parts.query.split("&"):
        name, _, value = piece.partition("=")
        if unquote_plus(name) == PARAMETER:
            token = token or unquote_plus(value)
        else:
            left.append(piece)
    return urlunsplit(parts._replace(query="&".join(left))), token or None
