"""Which of the host's /etc the ``host`` image shows: a short list of harmless files, and generated ones for the rest.

An allow-list, because /etc is where services keep their configuration and their secrets. On top of the list, a file
is taken only if everybody on the host may read it, and the name does not look like a key or a password.
"""

import os
import posixpath
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.images.layout import HOME, HOSTS, PATH, USER, USER_ID

MAX_FILE = 8 << 20

_FILES = (
    "ld.so.cache",
    "ld.so.conf",
    "ca-certificates.conf",
    "localtime",
    "timezone",
    "os-release",
    "debian_version",
    "mime.types",
    "services",
    "protocols",
    "magic",
    "magic.mime",
    "inputrc",
    "locale.alias",
    "vim/vimrc",
    "adduser.conf",
    "debconf.conf",
    "deluser.conf",
    "login.defs",
    "ucf.conf",
)
_DIRECTORIES = ("alternatives", "ld.so.conf.d", "perl", "terminfo")
_PATTERNS = ("python3*", "java-*-openjdk")

# People keep other things than authorities in ssl/certs too: of its files only the bundles are taken, and all links.
_CERTS = "ssl/certs"
_BUNDLE = "ssl/certs/ca-certificates.crt"
_BUNDLES = frozenset({_BUNDLE, "ssl/certs/ca-bundle.crt", "ssl/certs/java/cacerts"})
_OTHER_BUNDLES = ("pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "ca-certificates/extracted/tls-ca-bundle.pem")
_SECRET = re.compile(r"passw|secret|token|credential|keystore|private|\.(key|jks|p12|pfx)$", re.IGNORECASE)
_SYSTEM = re.compile(r"/(usr|bin|sbin|lib\w*)/")


def generated(shell: str) -> dict[str, bytes]:
    """Return the files that are the same on every host. No shadow: nobody logs in with a password here."""
    passwd = (
        f"root:x:0:0:root:/root:{shell}\n"
        f"{USER}:x:{USER_ID}:{USER_ID}:{USER}:{HOME}:{shell}\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    )
    texts = {
        "passwd": passwd,
        "group": f"root:x:0:\n{USER}:x:{USER_ID}:\nnogroup:x:65534:\n",
        "hostname": f"{USER}\n",
        "hosts": HOSTS.decode(),
        "resolv.conf": "",
        # dns has no effect without a network; with one, names must resolve
        "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
        "networks: files\nprotocols: files\nservices: files\nethers: files\nrpc: files\n",
        "shells": "/bin/sh\n/bin/bash\n",
        "profile": f"export PATH={PATH}\n"
        'if [ -n "${BASH_VERSION-}" ] && [ -r /etc/bash.bashrc ]; then . /etc/bash.bashrc; fi\n',
        "bash.bashrc": "[ -z \"${PS1-}\" ] && return\nshopt -s checkwinsize\nPS1='\\u@\\h:\\w\\$ '\n",
        # enough for the openssl command, whose compiled-in path leads here
        "ssl/openssl.cnf": "[req]\ndistinguished_name = req_distinguished_name\n[req_distinguished_name]\n",
    }
    return {path: text.encode() for path, text in texts.items()}


@dataclass(slots=True)
class Survey:
    """What was found, by path below /etc. Nothing has been read yet but names, sizes and times."""

    copies: dict[str, tuple[Path, int, int]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)


def survey(etc: Path) -> Survey:
    """Look through the host's /etc by the allow-list."""
    found = Survey()
    names = [*_FILES, *_DIRECTORIES, *(path.name for pattern in _PATTERNS for path in sorted(etc.glob(pattern)))]
    for name in names:
        _add(found, etc, name, lambda _: True)
    _add(found, etc, _CERTS, _BUNDLES.__contains__)
    if _BUNDLE not in found.copies:
        for other in _OTHER_BUNDLES:
            elsewhere = Survey()
            _add(elsewhere, etc, other, lambda _: True)
            if other in elsewhere.copies:
                found.links.pop(_BUNDLE, None)
                found.copies[_BUNDLE] = elsewhere.copies[other]
                break
    return found


def readable_by_all(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & 0o004) and status.st_size <= MAX_FILE


def _add(found: Survey, etc: Path, name: str, wanted: Callable[[str], bool]) -> None:
    """Add one name, if everybody may enter every directory on the way to it."""
    above = etc
    for part in ("", *name.split("/")[:-1]):
        above = above / part
        if not _enterable(above):
            return
    _visit(found, etc / name, name, wanted)


def _visit(found: Survey, path: Path, name: str, wanted: Callable[[str], bool]) -> None:
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            target = path.readlink()
            if _shown(name, str(target)):
                found.links[name] = str(target)
        elif stat.S_ISDIR(status.st_mode):
            if _enterable(path):
                for below in sorted(path.iterdir()):
                    if not _SECRET.search(below.name):
                        _visit(found, below, f"{name}/{below.name}", wanted)
        elif readable_by_all(status) and wanted(name):
            found.copies[name] = (path, status.st_size, status.st_mtime_ns)
    except OSError:
        return  # gone, or not ours to read: then it is not part of the image


def _enterable(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and mode & 0o005 == 0o005


def _shown(name: str, target: str) -> bool:
    """Say whether a link leads to something that the image has: the system directories, or the same part of /etc."""
    full = posixpath.normpath(posixpath.join("/etc", posixpath.dirname(name), target))
    return bool(_SYSTEM.match(full)) or full.startswith(f"/etc/{name.split('/')[0]}/")
