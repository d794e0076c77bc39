"""Parses git's smart HTTP as far as needed: which requests are part of it, and for which repository."""

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

SERVICES = ("git-upload-pack", "git-receive-pack")
"""Fetching, and pushing."""
PUSH = "git-receive-pack"

_QUERY = re.compile(r"service=(git-upload-pack|git-receive-pack)")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f/\\?#%]")


class NotGit(Exception):
    """The request is not part of smart HTTP; the message says why, for whoever sent it."""


@dataclass(frozen=True, slots=True)
class GitRequest:
    host: str
    repository: str
    """Its path on the server, unquoted, without a slash at either end."""
    service: str
    asks_for_refs: bool

    @property
    def target(self) -> str:
        """The path and query on the server."""
        end = f"info/refs?service={self.service}" if self.asks_for_refs else self.service
        return f"/{quote(self.repository)}/{end}"


def parse(method: str, path: str, query: str) -> GitRequest:
    """Parse a request. ``path`` is what follows ``/git/``, still quoted. Raises ``NotGit``.

    What is sent on is written anew from the parts that were understood here, so that the server cannot understand
    them in another way.
    """
    try:
        parts = [unquote(part, errors="strict") for part in path.split("/")]
    except UnicodeDecodeError:
        parts = []
    if len(parts) < 3 or any(part in ("", ".", "..") or _FORBIDDEN.search(part) for part in parts):
        raise NotGit("this is no path of a git repository; it must be /git/HOST/REPOSITORY/…")
    host, *rest = parts
    if method == "GET" and rest[-2:] == ["info", "refs"] and len(rest) > 2:
        found = _QUERY.fullmatch(query)
        if found is None:
            raise NotGit("only git's smart HTTP goes through here: info/refs?service=git-upload-pack or …receive-pack")
        return GitRequest(host, "/".join(rest[:-2]), found[1], True)
    if method == "POST" and rest[-1] in SERVICES and len(rest) > 1 and not query:
        return GitRequest(host, "/".join(rest[:-1]), rest[-1], False)
    raise NotGit(f"only git's smart HTTP goes through here (fetch, clone, push), not {method} …/{rest[-1]}")
