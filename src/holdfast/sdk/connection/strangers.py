"""Answers that are not the daemon's: what a proxy on the way, or another program there, says instead of it."""

from collections.abc import Mapping

from holdfast.errors import HoldfastError, by_code

_CODES = {401: "unauthorized", 403: "forbidden", 404: "not_found", 413: "too_large", 426: "upgrade_required"}
_AWAY = frozenset({502, 503, 504})


def error_of(status: int, headers: Mapping[str, str], url: str, *, websocket: bool = False) -> HoldfastError:
    """Make the error for an answer that is not the daemon's own; the message says whose it is, and what to do."""
    who = f"{server} at {url}" if (server := headers.get("Server", "")[:60]) else f"what answers at {url}"
    code = "unavailable" if status in _AWAY else _CODES.get(status, "internal")
    error = by_code(code)(_websocket(status, who) if websocket else _plain(status, who, headers))
    vars(error).update(code=code, status=status, request_id=None)
    return error


def _plain(status: int, who: str, headers: Mapping[str, str]) -> str:
    if 300 <= status < 400:
        return f"{who} sends us to {headers.get('Location', 'nowhere')[:200]} ({status}); use that address as the URL"
    match status:
        case 413:
            return (
                f"{who}, a proxy in front of the daemon, does not take a request of this size (413); raise its limit "
                "(nginx: client_max_body_size, Caddy: request_body), as docs/proxy.md does"
            )
        case 404:
            return f"{who} is not the daemon, and knows no such page (404); check the URL, and where its proxy leads"
        case 401 | 403:
            return f"{who}, a proxy in front of the daemon, does not let us in ({status})"
        case 504:
            return (
                f"{who}, a proxy in front of the daemon, has waited too long for its answer (504); raise its limit "
                "(nginx: proxy_read_timeout), as docs/proxy.md does"
            )
        case 502 | 503:
            return f"{who}, a proxy in front of the daemon, does not reach it ({status}); is the daemon up?"
    return f"{who} is not the daemon: its answer is {status}; check the URL"


def _websocket(status: int, who: str) -> str:
    if status in (401, 403, *_AWAY):
        return _plain(status, who, {})
    return (
        f"{who} does not pass WebSockets on to the daemon ({status}), which this needs; have the proxy pass on the "
        "headers Upgrade and Connection, as docs/proxy.md does"
    )
