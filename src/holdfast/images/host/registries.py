"""Where this host gets pip's and npm's packages from, as variables for a build. What else the environment holds is not
for installers to see: it may have keys in it.
"""

import configparser
import os
import re
import ssl
from pathlib import Path

_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_PIP = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST")
_NPM = "npm_config_registry"
_DEBIAN_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


def variables() -> dict[str, str]:
    """Proxies and registries: from the environment, else from the configuration files of pip and npm."""
    found = {name: value for name in (*_PROXIES, *_PIP) if (value := os.environ.get(name))}
    if "PIP_INDEX_URL" not in found and (index := _pip_index()):
        found["PIP_INDEX_URL"] = index
    if registry := os.environ.get(_NPM) or os.environ.get(_NPM.upper()) or _npm_registry():
        found[_NPM] = registry
    return found


def certificates() -> Path | None:
    """Return the authorities that the host trusts; there may be one more than in the image, for a proxy in between."""
    for path in (os.environ.get("SSL_CERT_FILE"), _DEBIAN_BUNDLE, ssl.get_default_verify_paths().cafile):
        if path and Path(path).is_file() and os.access(path, os.R_OK):
            return Path(path)
    return None


def _pip_index() -> str | None:
    for path in (Path.home() / ".config/pip/pip.conf", Path.home() / ".pip/pip.conf", Path("/etc/pip.conf")):
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue
        if value := parser.get("global", "index-url", fallback=None):
            return value
    return None


def _npm_registry() -> str | None:
    for path in (Path.home() / ".npmrc", Path("/usr/etc/npmrc"), Path("/etc/npmrc")):
        try:
            found = re.search(r"^\s*registry\s*=\s*(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        except (OSError, UnicodeDecodeError):
            continue
        if found:
            return found[1].strip("\"'")
    return None
