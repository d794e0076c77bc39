"""What the gateway can be told. The daemon fills it from its configuration."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    domain: str = "localhost"
    """Below it are the names of sessions' ports; it may end with a port."""
    tls: bool | None = None
    """Whether browsers reach these names by https; None: for any domain but ``localhost``."""
    public_hosts: Sequence[str] = ()
    """More names of the API itself."""
    session_seconds: float = 900.0
    """How long a visitor may do nothing before the cookie is worth nothing."""
    public_links: bool = False
    thread_preview_port: int | None = None
    """Where previews of threads lead to that name no port of their own."""
    max_connections: int = 512
    """Into one session, at the same time."""
