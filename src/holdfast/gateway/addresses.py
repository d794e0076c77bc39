"""Host names: which are the daemon's own, and which lead to a port of a session. Pure.

A session's port has a name of its own, ``3000--ses-01abc.localhost``. For browsers each name is a separate site, so
what runs in a sandbox can touch neither the daemon's pages nor those of another port. The part before ``--`` is the
*label*: a port, or the name of a tunnel or service.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from holdfast.records.gateway import is_name

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]", "holdfast.localhost")
"""Names that are always the daemon's own."""
_HOST = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
_PLACE = re.compile(r"([a-z0-9][a-z0-9-]*)--ses-([0-9a-z]{26})")
_PORT = re.compile(r"[1-9][0-9]{0,4}")


@dataclass(frozen=True, slots=True)
class SessionAddress:
    """Where a host name leads: a label of a session."""

    label: str
    session_id: str

    @property
    def port(self) -> int | None:
        return port_of(self.label)

    @property
    def first_label(self) -> str:
        return f"{self.label}--{self.session_id.replace('_', '-')}"


class HostNames:
    """The daemon's own names, and the domain of the others. ``domain`` may end with a port."""

    def __init__(self, domain: str, own: Iterable[str] = (), *, tls: bool | None = None) -> None:
        self.domain, colon, port = domain.lower().partition(":")
        self._port = f":{port}" if colon else ""
        self._own = {*LOOPBACK, *(name.lower() for name in own)}
        self.is_local = self.domain == "localhost" or self.domain.endswith(".localhost")
        self._tls = (not self.is_local) if tls is None else tls

    def is_own(self, host: str) -> bool:
        """Say whether a ``Host`` header names the daemon itself."""
        match = _HOST.fullmatch(host.lower())
        return match is not None and match[1] in self._own

    def place(self, host: str) -> SessionAddress | None:
        """Return the place that a ``Host`` header leads to; None if it leads to none."""
        match = _HOST.fullmatch(host.lower())
        if match is None or not match[1].endswith(f".{self.domain}"):
            return None
        found = _PLACE.fullmatch(match[1].removesuffix(f".{self.domain}"))
        if found is None or not is_label(found[1]):
            return None
        return SessionAddress(found[1], f"ses_{found[2]}")

    def url(self, place: SessionAddress, asked_at: str) -> str:
        """Return the address of a place, without a path. ``asked_at`` is the ``Host`` that the caller used: the port by
        which the daemon was reached is the port by which its ``*.localhost`` is reached."""
        port = self._port
        if self.is_local and not port:
            match = _HOST.fullmatch(asked_at.lower())
            port = f":{match[2]}" if match is not None and match[2] else ""
        return f"{self.scheme}://{place.first_label}.{self.domain}{port}"

    def own_hosts(self, asked_at: str) -> list[str]:
        """Return the daemon's own names as browsers reach them, with the port by which we were asked; of addresses only
        those that a content security policy can name."""
        match = _HOST.fullmatch(asked_at.lower())
        port = f":{match[2]}" if match is not None and match[2] else ""
        return [name + port for name in sorted(self._own) if not name.startswith("[")]

    @property
    def scheme(self) -> str:
        return "https" if self._tls else "http"


def port_of(label: str) -> int | None:
    """Return the port that a label names; None if it is another name."""
    if not _PORT.fullmatch(label):
        return None
    return int(label) if int(label) < 65536 else None


def is_label(text: str) -> bool:
    return port_of(text) is not None or is_name(text)
