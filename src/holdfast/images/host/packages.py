"""What apt needs in the ``host`` image: the host's own packages as the ones that are there, and where more come from.

Only the distribution's own sources are taken, without any that has a password in it: the rest is the operator's
business, and one that a session may not reach would make every update fail. With a read-only root nothing can be
installed; a program in front of apt says so, and what to do.
"""

import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.images.host.etc import readable_by_all

PROGRAMS = "opt/holdfast/bin"
"""In every session's PATH, before the system's own."""
_STATUS = "var/lib/dpkg/status"
_DIRECTORIES = (
    "etc/apt/apt.conf.d",
    "etc/apt/preferences.d",
    "etc/apt/sources.list.d",
    "etc/apt/trusted.gpg.d",
    "etc/dpkg/dpkg.cfg.d",
    "var/cache/apt/archives/partial",
    "var/cache/debconf",
    "var/lib/apt/lists/partial",
    "var/lib/dpkg/alternatives",
    "var/lib/dpkg/info",
    "var/lib/dpkg/triggers",
    "var/lib/dpkg/updates",
    "var/log/apt",
)
_TEXTS = {
    # A sandbox has no capability to become another user, or to give files to one.
    "etc/apt/apt.conf.d/holdfast": 'APT::Sandbox::User "root";\n',
    "etc/dpkg/dpkg.cfg.d/holdfast": "force-not-root\n",
    "var/lib/dpkg/available": "",
    "var/lib/dpkg/diversions": "",
    "var/lib/dpkg/statoverride": "",  # the host's names users that are not here
}
_HINT = """\
#!/bin/sh
# In front of %(program)s: where nothing can be installed, it says why.
case " $* " in
*" install "* | *" update "* | *" upgrade "* | *" dist-upgrade "* | *" full-upgrade "* | *" remove "* | *" purge "*)
    if [ ! -w /var/lib/dpkg ]; then
        echo "holdfast: the root of this session is read-only, so %(program)s cannot install anything here." >&2
        echo "holdfast: make a session with a writable one: holdfast new --writable-root," \\
            "or \\"writable_root\\": true in the API." >&2
        exit 100
    fi ;;
esac
exec /usr/bin/%(program)s "$@"
"""
_KEYS = re.compile(r"/(usr|etc/apt)/[\w./+-]+\.(gpg|asc|pgp)")
_POCKETS = ("", "-updates", "-security", "-backports", "/updates")


@dataclass(frozen=True, slots=True)
class Packages:
    """What the image gets, by paths below its root. All empty on a host without apt."""

    directories: Sequence[str] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, Path] = field(default_factory=dict)
    state: tuple[int, int] = (0, 0)
    """Size and time of the list of packages: what else is copied changes with it."""


def survey(host: Path) -> Packages:
    """Look at the host below ``host``."""
    try:
        status = (host / _STATUS).stat()
    except OSError:
        return Packages()
    names = [name for name in ("apt", "apt-get") if (host / "usr/bin" / name).exists()]
    if not names or not readable_by_all(status):
        return Packages()
    lines = list(sources(host))
    texts = {**_TEXTS, "etc/apt/sources.list": "".join(f"{line}\n" for line in lines)}
    programs = {f"{PROGRAMS}/{name}": _HINT % {"program": name} for name in names}
    copies = dict(_copies(host, "\n".join(lines)))
    return Packages(_DIRECTORIES, texts, programs, copies, (status.st_size, status.st_mtime_ns))


def _copies(host: Path, text: str) -> Iterator[tuple[str, Path]]:
    for name in (_STATUS, "var/lib/dpkg/arch", "var/lib/dpkg/info/format"):
        yield name, host / name
    for below, ends in (("var/lib/dpkg/info", (".list",)), ("var/lib/dpkg/alternatives", ("",))):
        for path in _files(host / below, ends):
            yield f"{below}/{path.name}", path
    for path in _files(host / "etc/apt/trusted.gpg.d", (".gpg", ".asc")):
        yield f"etc/apt/trusted.gpg.d/{path.name}", path
    for found in _KEYS.finditer(text):
        if found[1] == "etc/apt":  # those below /usr are there anyway
            yield found[0][1:], host / found[0][1:]


def _files(place: Path, ends: tuple[str, ...]) -> list[Path]:
    try:
        with os.scandir(place) as entries:
            return sorted(Path(one.path) for one in entries if one.name.endswith(ends) and one.is_file())
    except OSError:
        return []


# -- sources ---------------------------------------------------------------------------------------------------------


def sources(host: Path) -> Iterator[str]:
    """Yield the distribution's own, as lines of a sources.list."""
    codename = _codename(host)
    if not codename:
        return
    suites = {f"{codename}{pocket}" for pocket in _POCKETS}
    yield from dict.fromkeys(line for entry in _entries(host / "etc/apt") if (line := entry.line(suites)))


@dataclass(frozen=True, slots=True)
class _Entry:
    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str = ""

    def line(self, suites: set[str]) -> str | None:
        parts = urlsplit(self.uri)
        plain = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc and not parts.query
        if not plain or self.suite not in suites or "main" not in self.components:
            return None
        key = f"[signed-by={self.signed_by}] " if _KEYS.fullmatch(self.signed_by) else ""
        return f"deb {key}{self.uri} {self.suite} {' '.join(self.components)}"


def _entries(apt: Path) -> Iterator[_Entry]:
    for path in [apt / "sources.list", *_files(apt / "sources.list.d", (".list", ".sources"))]:
        try:
            text = path.read_text(errors="replace") if readable_by_all(path.stat()) else ""
        except OSError:
            continue
        yield from _stanzas(text) if path.suffix == ".sources" else _lines(text)


def _lines(text: str) -> Iterator[_Entry]:
    for line in text.splitlines():
        found = re.fullmatch(r"deb\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)\s+([^#]+)(#.*)?", line.strip())
        if found:
            options = dict(one.partition("=")[::2] for one in (found[1] or "").split())
            yield _Entry(found[2], found[3], tuple(found[4].split()), options.get("signed-by", ""))


def _stanzas(text: str) -> Iterator[_Entry]:
    for stanza in re.split(r"\n\s*\n", text):
        kept = [line for line in stanza.splitlines() if not line.startswith("#")]
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in kept)}
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
            continue
        components = tuple(fields.get("components", "").split())
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield _Entry(uri, suite, components, fields.get("signed-by", ""))


def _codename(host: Path) -> str:
    try:
        place = host / "etc/os-release"
        if place.is_symlink():
            place = host / posixpath.normpath(posixpath.join("/etc", place.readlink()))[1:]
        found = re.search(r'^VERSION_CODENAME="?([\w-]+)"?$', place.read_text(), re.MULTILINE)
    except OSError:
        return ""
    return found[1] if found else ""
