"""The daemon's address: a socket there, who can reach it, and what to do where that is more than this machine."""

import ipaddress
import socket

from holdfast.daemon.config.config import Config

ADVICE = (
    "Keys and everything else travel there unencrypted. "
    "Put a proxy with TLS in front and listen on 127.0.0.1 behind it, or reach it with `ssh -L`; "
    "give everybody a key of their own (`holdfast key add`), and keep the root key here"
)


def bind(config: Config) -> socket.socket:
    """Bind a socket to the daemon's address. Raises ``OSError``."""
    bound = socket.socket(socket.AF_INET6 if ":" in config.host else socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((config.host, config.port))
    except OSError:
        bound.close()
        raise
    return bound


def exposure(config: Config) -> str | None:
    """Describe an address that other machines may reach; None for one that only this machine reaches."""
    host = config.host
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None if host == "localhost" else f"{config.listen} may be reached from other machines"
    if address.is_loopback:
        return None
    if address.is_unspecified:
        return f"{config.listen} is every address of this machine: whoever reaches one of them reaches Holdfast"
    return f"{config.listen} can be reached from other machines"
