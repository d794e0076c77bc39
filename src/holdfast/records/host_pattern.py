"""Which hosts a session may reach, as its owner writes it: ``pypi.org``, ``*.pythonhosted.org``, ``example.com:8443``.

    pypi.org            that host and no other
    *.pythonhosted.org  every host below it, at any depth, but not itself
    203.0.113.7         that address; IPv6 as 2001:db8::1, or [2001:db8::1] where a port follows
    …:8443              that port alone; without one, 80 and 443

Names are compared in one form: lower case, ASCII (IDNA), without a dot at the end. Pure: resolves nothing.
"""

import ipaddress
import re
from dataclasses import dataclass

import idna

DEFAULT_PORTS = frozenset({80, 443})
MAX_NAME = 253

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


def normalised_host(text: str) -> str:
    """Return a host in the one form in which hosts are compared. Raises ``ValueError`` that says what is wrong."""
    if "%" in text:
        raise ValueError("names an interface of its own machine")
    if (address := as_address(text)) is not None:
        return str(address)
    name = text.lower() if text.isascii() else _ascii(text)
    name = name.removesuffix(".")
    labels = name.split(".")
    if len(name) > MAX_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("is not a host name")
    if _NUMBER.fullmatch(labels[-1]):  # 127.1, 0x7f.1 and 2130706433 are addresses to some resolvers
        raise ValueError("is neither a host name nor an address in full")
    return name


def _ascii(text: str) -> str:
    try:
        return idna.encode(text, uts46=True).decode("ascii")
    except idna.IDNAError as error:
        raise ValueError(f"is not a host name: {error}") from None


def split_port(text: str) -> tuple[str, int | None]:
    """Take ``host:port`` apart; IPv6 may stand in brackets. Raises ``ValueError``."""
    bracketed = re.fullmatch(r"\[([^\[\]]+)\](?::(.*))?", text, re.DOTALL)
    if bracketed:
        host, port = bracketed[1], bracketed[2]
        ipaddress.IPv6Address(host)
    elif text.count(":") > 1:  # IPv6 as it is
        host, port = text, None
        ipaddress.IPv6Address(host)
    else:
        host, colon, rest = text.partition(":")
        port = rest if colon else None
    if port is None:
        return host, None
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise ValueError("has no port between 1 and 65535 behind its colon")
    return host, int(port)


def as_address(host: str) -> Address | None:
    """Return the address that a host is, if it is one."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class HostPattern:
    """One line of an allow-list."""

    host: str
    below: bool = False
    """Whether it means what is below ``host``, instead of ``host`` itself."""
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> "HostPattern":
        """Read one line. Raises ``ValueError`` that says what is wrong."""
        if "/" in text or "@" in text:
            raise ValueError("must be a host, without a scheme, a user or a path")
        if text in ("*", "*.", "*:*"):
            raise ValueError("would allow everything; that is the network full")
        host, port = split_port(text)
        below = host.startswith("*.")
        host = normalised_host(host.removeprefix("*."))
        if below and as_address(host) is not None:
            raise ValueError("has an address behind *.; addresses have no hosts below them")
        return cls(host, below, port)

    def matches(self, host: str, port: int) -> bool:
        """Say whether a host is in the list; ``host`` must be normalised."""
        if port != self.port if self.port is not None else port not in DEFAULT_PORTS:
            return False
        return self.names(host)

    def names(self, host: str) -> bool:
        """Say whether the pattern means this host, at whatever port."""
        return host.endswith(f".{self.host}") if self.below else host == self.host

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host and self.port is not None else self.host
        return ("*." if self.below else "") + host + (f":{self.port}" if self.port is not None else "")
