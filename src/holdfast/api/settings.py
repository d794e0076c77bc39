"""What the edge can be told. The daemon fills it from its configuration."""

from collections.abc import Sequence
from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Limits of the edge itself; limits of sessions belong to the session service.

    ``max_body_bytes`` bounds a file upload as it travels (base64 is a third larger than the file);
    ``max_content_bytes`` a request that carries a text of its caller's: a command with its input, a message;
    ``max_json_bytes`` every other request. The latter two are kept in memory as a whole.
    """

    max_body_bytes: int = 192 * MIB
    max_content_bytes: int = 8 * MIB
    max_json_bytes: int = MIB
    public_url: str | None = None
    """Where the world finds the API; None: where each request was sent to."""
    trusted_proxies: Sequence[str] = ()
    node: str | None = None
    """The name of the daemon's node, by which somebody on its machine knows its state directory."""
    default_page: int = 100
    max_page: int = 1000
