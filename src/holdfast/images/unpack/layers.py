"""Images that are made of layers (``docker save``, OCI archives and layouts, registries), made into one plain tar.

skopeo fetches or converts them, as whoever we are and with what it knows of logins; umoci puts the layers on top of
each other, enclosed, because layers may be hostile.
"""

import ipaddress
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import BadInput, DiskFull, TooLarge, Unavailable
from holdfast.images.builds import enclosure
from holdfast.images.unpack.budget import Budget
from holdfast.network.addresses import METADATA_NAMES, is_never
from holdfast.records.services import SERVICES_LABEL, ServiceSpecs, read_services

REGISTRY = "docker://"
_REFERENCE = re.compile(r"docker://[A-Za-z0-9][A-Za-z0-9._:/@-]{0,500}")
_LOOPBACK = re.compile(r"docker://(localhost|127\.\d+\.\d+\.\d+)(:\d+)?/")
_POLICIES = (Path("/etc/containers/policy.json"), Path.home() / ".config/containers/policy.json")
_TAG = "image"
_SECONDS = 1500.0
_TICK_SECONDS = 0.25
_KEEP_FREE = 64 << 20
_MAX_JSON = 4 << 20
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class LayersFound(Exception):
    """Not an error of anybody: what looked like a root file system is made of layers. ``source`` is for ``flatten``."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.source = source


@dataclass(frozen=True, slots=True)
class Flat:
    """One image, ready to be imported."""

    tar: Path
    env: Mapping[str, str]
    digest: str
    services: ServiceSpecs = ()
    """What its label says, which the Dockerfiles of our recipes set."""


def check_reference(text: str) -> None:
    if not _REFERENCE.fullmatch(text):
        raise BadInput(f"source: {text[:200]!r} is not a reference such as docker://registry.example.org/name:tag")
    host = text.removeprefix(REGISTRY).partition("/")[0].partition(":")[0]
    if host.lower().rstrip(".") in METADATA_NAMES or _is_never(host):
        raise BadInput(f"source: {host} is an address that nobody may reach, and no registry")


def _is_never(host: str) -> bool:
    try:
        return is_never(ipaddress.ip_address(host))
    except ValueError:
        return False  # a name


def flatten(source: str, place: Path, budget: Budget) -> Flat:
    """Make ``place/root.tar`` from what skopeo calls ``source``; ``place`` must exist and be empty.

    Raises ``ToolMissing``, ``BadInput`` for what is no image, ``Unavailable`` for a registry that does not give it,
    ``TooLarge`` and ``DiskFull``.
    """
    enclosure.need_tools("skopeo", "umoci")
    watch = _Watch(place, budget)
    layout = place / "layout"
    _copy(_named(source, place), source, layout, place, watch)
    digest, env, services = _read(layout)
    place.chmod(0o711)
    enclosure.own(place)
    tar = place / "root.tar"
    unpack = (
        'cd "$0" && umoci raw unpack --image "layout:$1" rootfs && rm -rf layout && '
        "tar --numeric-owner -C rootfs -cf root.tar . && chmod 644 root.tar"
    )
    said = bytearray()
    try:
        argv = ["sh", "-c", unpack, str(place), _TAG]
        status = enclosure.run(argv, env={"HOME": str(place)}, seconds=_SECONDS, hear=said.extend, check=watch.check)
    finally:
        enclosure.remove(place / "rootfs")
    if status != 0:
        raise BadInput(f"{source} cannot be unpacked: {_last_line(bytes(said))}")
    return Flat(tar, env, digest, services)


class _Watch:
    """Layers that unpack for ever are noticed by the space that goes."""

    def __init__(self, place: Path, budget: Budget) -> None:
        self._place = place
        self._budget = budget
        self._free = self._now()

    def check(self) -> None:
        self._budget.check()
        free = self._now()
        if free < _KEEP_FREE:
            raise DiskFull(f"no space left to unpack the image below {self._place.parent}; free some, then try again")
        if self._free - free > 4 * self._budget.max_bytes:
            raise TooLarge(f"the image unpacks to more than {self._budget.max_bytes >> 20} MB; make it smaller")

    def _now(self) -> int:
        status = os.statvfs(self._place)
        return status.f_bavail * status.f_frsize


def _named(source: str, place: Path) -> str:
    """skopeo takes colons in a path for the end of it; the store's own path has none."""
    transport, _, path = source.partition(":")
    if source.startswith(REGISTRY):
        return source
    link = place / "source"
    link.symlink_to(path)
    return f"{transport}:{link}"


def _copy(named: str, source: str, layout: Path, place: Path, watch: _Watch) -> None:
    policy = [] if any(path.exists() for path in _POLICIES) else ["--insecure-policy"]
    # as Docker does: a registry on this very machine rarely has a certificate
    plain = ["--src-tls-verify=false"] if _LOOPBACK.match(source) else []
    log = place / "skopeo.log"
    argv = ["skopeo", "--tmpdir", str(place), *policy, "copy", "--quiet", *plain, named, f"oci:{layout}:{_TAG}"]
    with open(log, "wb") as out:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        try:
            _wait(process, watch)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if process.returncode != 0:
        why = _last_line(log.read_bytes()[-4000:])
        shutil.rmtree(layout, ignore_errors=True)
        if source.startswith(REGISTRY):
            raise Unavailable(f"{source} could not be fetched ({why}); try `skopeo inspect {source}` on the host")
        raise BadInput(f"{source} is not an image that skopeo can read ({why})")
    log.unlink()


def _wait(process: "subprocess.Popen[bytes]", watch: _Watch) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            process.wait(_TICK_SECONDS)
            return
        except subprocess.TimeoutExpired:
            watch.check()
            if time.monotonic() > deadline:
                raise Unavailable(f"the image was not there within {_SECONDS:.0f} s; try again later") from None


def _read(layout: Path) -> tuple[str, dict[str, str], ServiceSpecs]:
    """Return the digest, the environment and the services of the only image in a layout."""
    try:
        digest = _json(layout / "index.json")["manifests"][0]["digest"]
        config = _json(_blob(layout, _json(_blob(layout, digest))["config"]["digest"]))
        said = config.get("config") or {}
        pairs = [str(pair).partition("=") for pair in said.get("Env") or []]
        declared = json.loads((said.get("Labels") or {}).get(SERVICES_LABEL) or "{}")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"the image's manifest or configuration is damaged ({error!r})") from error
    usable = {name: value for name, _, value in pairs if _VARIABLE.fullmatch(name) and "\0" not in value}
    env = {name: value for name, value in usable.items() if not name.startswith("HOLDFAST_")}
    try:
        return digest, env, read_services(declared)
    except BadInput as error:
        raise BadInput(f"the image's label {SERVICES_LABEL} is wrong: {error.message}") from None


def _json(path: Path) -> Any:
    with open(path, "rb") as file:
        return json.loads(file.read(_MAX_JSON))  # of any shape: the caller is ready for all


def _blob(layout: Path, digest: str) -> Path:
    if not re.fullmatch(r"sha\d+:[0-9a-f]+", digest):
        raise ValueError(digest)
    return layout / "blobs" / digest.replace(":", "/")


def _last_line(said: bytes) -> str:
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
    last = lines[-1].strip() if lines else "it said nothing"
    quoted = re.search(r'level=fatal msg="(.*)"', last)
    return (quoted[1] if quoted else last)[-400:]
