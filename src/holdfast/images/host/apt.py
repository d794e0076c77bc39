"""Where this host gets Debian packages from, and how: for builds to do the same. Read from apt; nothing is changed.

On a host without apt, or one that is not Debian, there is nothing to take over: mmdebstrap knows a mirror itself.
"""

import re
import shutil
import subprocess
from pathlib import Path

_SECONDS = 20.0
_FORMAT = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)"
_OPTIONS = re.compile(r'Acquire::(https?(::|\s)|Check-Valid-Until|Retries)[^\n]*"[^\n]+";')


def sources(suite: str, mirror: str | None) -> list[str]:
    """Lines of a sources.list for ``suite``: of ``mirror``, else as the host has them; none for the tool's default."""
    if mirror is not None:
        return [f"deb {mirror} {suite} main"]
    release = _os_release()
    if release.get("ID") != "debian":
        return []
    text = _ask("apt-get", "indextargets", "--no-release-info", "--format", _FORMAT, "Created-By: Packages")
    return parse_sources(text, {suite, release.get("VERSION_CODENAME", suite)}, suite)


def parse_sources(text: str, ours: set[str], suite: str) -> list[str]:
    """From what apt says: the distribution's own, of the releases that are ``ours``, turned to ``suite``."""
    lines: dict[str, None] = {}
    for row in text.splitlines():
        uri, release, component = [*row.split("|"), "", ""][:3]
        name, dash, pocket = release.partition("-")
        if name in ours and component == "main" and pocket in ("", "updates", "security"):
            lines[f"deb {uri} {suite}{dash}{pocket} main"] = None
    return list(lines)


def options() -> list[str]:
    """Return the host's proxies and certificates for apt, in apt's own words."""
    return parse_options(_ask("apt-config", "dump"))


def parse_options(text: str) -> list[str]:
    return [line for line in text.splitlines() if _OPTIONS.fullmatch(line)]


def _ask(*argv: str) -> str:
    if shutil.which(argv[0]) is None:
        return ""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout if done.returncode == 0 else ""


def _os_release() -> dict[str, str]:
    try:
        text = Path("/etc/os-release").read_text()
    except OSError:
        return {}
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {name: value.strip('"') for name, value in pairs}
