"""The git servers that sandboxes of threads can reach through the broker, and who commits there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from holdfast.broker.secrets import Key


@dataclass(frozen=True, slots=True)
class GitHost:
    """One server. ``name`` is what stands in a URL: ``github.com``, ``git.example.com:8443``."""

    name: str
    key: Key | None = None
    """None: whoever asks is nobody in particular, and sees what is public."""
    username: str = "x-access-token"
    paths: Sequence[str] = ("*",)
    """Which repositories may be reached: patterns such as ``acme/*``, without ``.git``. ``*`` is any text."""
    push: bool = True
    url: str = ""
    """Where it really is, if not at ``https://name``; without a slash at the end."""
    ca_file: str = ""
    """Certificates in PEM that vouch for it, beside those that this machine trusts anyway."""
    owners: Mapping[str, "GitHost"] = field(default_factory=dict)
    """The same server, as it is for threads of these owners."""
    threads: Mapping[tuple[str, str], "GitHost"] = field(default_factory=dict)
    """And for threads of an owner whose key is like a pattern; the first counts, and before the owner alone.

    Never by the pattern alone: whoever has a key names threads as they like.
    """

    def for_thread(self, owner: str, key: str) -> "GitHost":
        """Return the server's settings for this thread."""
        for (whose, pattern), host in self.threads.items():
            if whose == owner and fnmatchcase(key, pattern):
                return host
        return self.owners.get(owner, self)

    @property
    def base_url(self) -> str:
        return self.url or f"https://{self.name}"

    def allows(self, repository: str) -> bool:
        """Say whether this repository may be reached. Case matters, even if the server ignores it."""
        return any(fnmatchcase(repository.removesuffix(".git"), pattern) for pattern in self.paths)


@dataclass(frozen=True, slots=True)
class GitSettings:
    hosts: Mapping[str, GitHost] = field(default_factory=dict)
    user_name: str = ""
    user_email: str = ""
