"""The script that finishes an image: what a recipe says, in the shell's words. Pure.

mmdebstrap runs it with the root file system as its argument, as root of the enclosure. Lines that begin with ``==>``
are the steps that people see. Whatever the host lent (certificates, mirrors, name servers) is taken out at the end.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.images.builds.recipe import Recipe
from holdfast.images.layout import HOME, USER_ID

STEP = "==> "
LENT = "/run/holdfast-build"
MIRRORS = "holdfast-build.list"
"""The file of mirrors that mmdebstrap is given; it copies it into the image, with a number before its name."""
_TRUSTED = ("SSL_CERT_FILE", "PIP_CERT", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "npm_config_cafile")
_PIP = "python3 -m pip install --break-system-packages --no-cache-dir --progress-bar=off"
_NPM = "npm install --global --prefix /usr/local --no-audit --no-fund --no-update-notifier"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_HEAD = """#!/bin/sh
set -eu
root=$1
say() { echo "==> $*"; }
mkdir -p "$root%(lent)s" "$root/etc"
rm -f "$root/etc/resolv.conf"
if [ -e /etc/resolv.conf ]; then cp -L /etc/resolv.conf "$root/etc/resolv.conf"; fi
if ! [ -e "$root/bin/sh" ] && [ -x "$root/bin/busybox" ]; then chroot "$root" /bin/busybox --install -s /bin; fi
"""

_ACCOUNT = """if [ -e "$root/etc/passwd" ]; then
    if grep -q '^[^:]*:[^:]*:%(id)s:' "$root/etc/passwd"; then
        sed -i 's/^[^:]*:\\([^:]*:%(id)s:\\)/%(user)s:\\1/' "$root/etc/passwd" "$root/etc/group"
    else
        shell=/bin/sh
        if [ -e "$root/bin/bash" ]; then shell=/bin/bash; fi
        echo "%(user)s:x:%(id)s:%(id)s:%(user)s:%(home)s:$shell" >>"$root/etc/passwd"
        echo "%(user)s:x:%(id)s:" >>"$root/etc/group"
    fi
fi
mkdir -p "$root%(home)s"
chown %(id)s:%(id)s "$root%(home)s"
"""

_TAIL = """say cleaning up
rm -rf "$root%(lent)s" "$root/root/.npm" "$root/root/.cache" "$root/var/log/apt" "$root/var/cache/debconf/"*-old
rm -f "$root/etc/apt/sources.list" "$root/etc/apt/sources.list.d/"*%(mirrors)s
rm -f "$root/etc/apt/apt.conf.d/99mmdebstrap" "$root/etc/dpkg/dpkg.cfg.d/99mmdebstrap"
rm -f "$root/etc/resolv.conf" "$root/etc/hostname" "$root/var/log/dpkg.log" "$root/var/log/alternatives.log"
if [ -e "$root/etc/machine-id" ]; then : >"$root/etc/machine-id"; fi
"""


@dataclass(frozen=True, slots=True)
class Lent:
    """What the host lends to a build: variables for installers, and its list of authorities."""

    variables: Mapping[str, str]
    certificates: Path | None


def script(recipe: Recipe, files: Path, lent: Lent) -> str:
    """``files`` is where the contents of the recipe's files are, named by their number."""
    words = {"lent": LENT, "mirrors": MIRRORS, "id": str(USER_ID), "user": recipe.user, "home": HOME}
    parts = [_HEAD % words]
    if lent.certificates:
        parts.append(f'cp {shlex.quote(str(lent.certificates))} "$root{LENT}/ca.crt"\n')
    parts.append(_inside(_environment(recipe, lent)))
    if recipe.parent and recipe.packages:
        parts.append(_packages(recipe.packages))
    if recipe.build_packages:
        parts += [_list_packages("before"), _packages(recipe.build_packages)]
    parts.append(_ACCOUNT % words)
    parts += [_file(number, recipe, files) for number in range(len(recipe.files))]
    parts += [*_install("pip", _PIP, recipe.pip), *_install("npm", _NPM, recipe.npm)]
    parts += _commands(recipe)
    if recipe.build_packages:
        parts.append(_purge(recipe.build_packages))
    parts.append(_TAIL % words)
    return "\n".join(parts)


def _environment(recipe: Recipe, lent: Lent) -> dict[str, str]:
    return {
        "PATH": _PATH,
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        **lent.variables,
        **(dict.fromkeys(_TRUSTED, f"{LENT}/ca.crt") if lent.certificates else {}),
        **recipe.env,
    }


def _inside(environment: Mapping[str, str]) -> str:
    pairs = " ".join(shlex.quote(f"{name}={value}") for name, value in environment.items())
    return f'inside() {{ env -i {pairs} chroot "$root" "$@"; }}\n'


def _say(what: str) -> str:
    return f"say {shlex.quote(what)}\n"


def _packages(packages: Sequence[str]) -> str:
    """By the host's apt, which reaches the mirrors, into the root."""
    return (
        _say(f"installing {', '.join(packages)}")
        + 'printf "#!/bin/sh\\nexit 101\\n" >"$root/usr/sbin/policy-rc.d" && chmod +x "$root/usr/sbin/policy-rc.d"\n'
        + 'APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" DEBIAN_FRONTEND=noninteractive apt-get --yes --no-install-recommends'
        + f' -oDPkg::Chroot-Directory="$root" -oDPkg::Use-Pty=0 install {shlex.join(packages)}\n'
        + 'rm "$root/usr/sbin/policy-rc.d"\n'
    )


def _list_packages(when: str) -> str:
    return f"""inside dpkg-query --show --showformat '${{binary:Package}}\\n' >"$root{LENT}/{when}"\n"""


def _purge(packages: Sequence[str]) -> str:
    """Remove what came for the build alone: what is installed now and was not before, and nothing else."""
    names = f'sort -o "$root{LENT}/$when" "$root{LENT}/$when"'
    return (
        _say(f"removing {', '.join(packages)}")
        + _list_packages("after")
        + f"for when in before after; do LC_ALL=C {names}; done\n"
        + f'inside dpkg --purge $(LC_ALL=C comm -13 "$root{LENT}/before" "$root{LENT}/after")\n'
    )


def _file(number: int, recipe: Recipe, files: Path) -> str:
    file = recipe.files[number]
    write = 'mkdir -p "${1%/*}/" && rm -f "$1" && cat >"$1" && chmod "$2" "$1"'
    return (
        _say(f"writing {file.path}")
        + f"inside sh -euc {shlex.quote(write)} sh {shlex.quote(file.path)} {file.mode:o}"
        + f" <{shlex.quote(str(files / str(number)))}\n"
    )


def _install(tool: str, command: str, names: Sequence[str]) -> list[str]:
    return [_say(f"{tool} install {' '.join(names)}") + f"inside {command} {shlex.join(names)}\n"] if names else []


def _commands(recipe: Recipe) -> list[str]:
    return [
        _say(f"running {_first_line(command)}") + f"inside sh -euc {shlex.quote(command)}\n"
        for command in recipe.commands
    ]


def _first_line(command: str) -> str:
    lines = [line.strip() for line in command.strip().splitlines()] or [""]
    return lines[0][:70] + (" …" if len(lines) > 1 or len(lines[0]) > 70 else "")
