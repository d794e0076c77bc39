"""One Docker sandbox's own directory on the host: its disk, its view of the image, and where its cgroups are.

As root the image is mounted at ``root`` for this session alone: read-only and with set-id bits of no effect, or, for a
writable root, as a layer on the session's disk, so that the disk's limit holds for it. Docker is shown what is there.
Mounts last as long as the sandbox, and are made again when it is started after a reboot of the host. An ordinary user
can mount nothing; Docker is then shown the image itself.

Everything here blocks, for a few milliseconds; the driver calls it in a thread.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog

from holdfast.drivers.base import ImageRoot, SandboxSpec
from holdfast.drivers.disk.space import Space, make_directory
from holdfast.drivers.docker.config import DockerHost, DockerPlaces, JsonObject
from holdfast.drivers.docker.skeleton import Skeleton
from holdfast.drivers.linux import mounts, user_namespaces
from holdfast.drivers.linux.ids import of_host_files
from holdfast.drivers.linux.slirp import Slirp
from holdfast.drivers.linux.withheld import hide
from holdfast.records.limits import Network

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Facts:
    """What must be known to start the sandbox again; kept in ``sandbox.json``."""

    layout: str
    binds: Mapping[str, str]
    writable_root: bool
    network: str
    disk_mb: int

    @classmethod
    def of(cls, spec: SandboxSpec) -> "Facts":
        binds = {inside: str(source) for inside, source in spec.image.binds.items()}
        return cls(str(spec.image.layout), binds, spec.writable_root, spec.network.value, spec.limits.disk_mb)


class DockerHome:
    """``<state>/docker/<session id>``."""

    def __init__(self, directory: Path, host: DockerHost) -> None:
        self.directory = directory
        self.disk = directory / "disk"
        self._host = host
        self._root = directory / "root"
        self._shifted = directory / "shifted"
        self._facts = directory / "sandbox.json"
        self._cgroups = directory / "cgroups.json"
        self._request = directory / "container.json"

    def fill(self, spec: SandboxSpec, skeleton: Skeleton, space: Space) -> DockerPlaces:
        """Lay out the writable space on its disk, and show the image.

        What is there already was restored, and stays as the session has made it.
        """
        space.lay_out(self._owner(self._host.inside_user(writable_root=spec.writable_root)))
        facts = Facts.of(spec)
        _write(self._facts, json.dumps(asdict(facts)))
        guarded = self.mount(facts)
        if spec.network is Network.FULL:
            Slirp(self.directory, rootless=False).write_resolver()
        return DockerPlaces(
            workspace=space.workspace(),
            tmp=self.disk / "tmp",
            image={name: self._source(spec.image, name, guarded) for name in skeleton.shown()},
            guarded=guarded,
            masked=() if spec.writable_root else tuple(self._shut(spec.image)),
            resolver=self.directory / "resolv.conf" if spec.network is Network.FULL else None,
        )

    def _shut(self, image: ImageRoot) -> Iterator[str]:
        """Return what a read-only root has to mask. A daemon that is root shows nothing that its user owns on the
        host."""
        host = self._host
        for inside, source in image.binds.items():
            for entry in host.withheld.known(source) if host.privileged else host.withheld.of(source):
                if entry.is_door or self._host.inside_user(writable_root=False) in (entry.uid, entry.gid):
                    yield f"{inside}/{entry.path}"

    def keep_request(self, request: JsonObject) -> None:
        """Keep what Docker was asked to create, in case somebody removes the container. It holds the environment."""
        _write(self._request, json.dumps(request))

    def request(self) -> JsonObject:
        """Raises OSError or ValueError if none was kept, as by an earlier version."""
        return dict(json.loads(self._request.read_text()))

    def facts(self) -> Facts:
        """Raises OSError or ValueError if the sandbox was never finished."""
        return Facts(**json.loads(self._facts.read_text()))

    def mount(self, facts: Facts) -> bool:
        """Show the image at ``root``, if it is not there already; False where it cannot be mounted."""
        if not self._host.privileged:
            return False
        image = {"": Path(facts.layout)} | {name: Path(source) for name, source in facts.binds.items()}
        for inside, source in image.items():
            target = self._root / inside.strip("/")
            if not inside:
                target.mkdir(exist_ok=True)
            if mounts.is_mounted(target):
                continue
            if facts.writable_root:
                name = inside.strip("/").replace("/", "-") or "root"
                self._make_layer(name, source)
                if inside:
                    hide(self._host.withheld.of(source), source, self.disk / "upper" / name, self._host.id_base)
                self._mount_layer(name, self._lower(inside, source), target)
            elif not self._mount_view(inside, source, target):
                return False
        return True

    def _mount_view(self, inside: str, source: Path, target: Path) -> bool:
        try:
            if inside and self._can_show_as(source, target):
                return True
            mounts.mount_view(source, target, None)
        except OSError as error:
            log.info("docker.view.unavailable", path=str(source), why=error.strerror)
            return False
        return True

    def _can_show_as(self, source: Path, target: Path) -> bool:
        """Mount it with other owners. Where ids are not mapped, it can be shown without."""
        try:
            namespace = user_namespaces.make(of_host_files(self._host.id_base))
            try:
                mounts.mount_view(source, target, namespace)
            finally:
                os.close(namespace)
        except OSError:
            if self._host.id_base:
                raise
            return False
        return True

    def _make_layer(self, name: str, lower: Path) -> None:
        for base in ("upper", "work"):
            make_directory(self.disk / base, self._owner(), 0o755)
        make_directory(self.disk / "upper" / name, self._owner(), lower.stat().st_mode & 0o7777)
        make_directory(self.disk / "work" / name, self._owner(), 0o700)

    def _mount_layer(self, name: str, lower: Path, target: Path) -> None:
        mounts.mount_overlay(lower, self.disk / "upper" / name, self.disk / "work" / name, target)

    def _lower(self, inside: str, source: Path) -> Path:
        """Images belong to the sandboxes' root already; what is the host's own must be shown so, if it can be."""
        if not inside or not self._host.id_base:
            return source
        shifted = self._shifted / inside.strip("/")
        shifted.mkdir(parents=True, exist_ok=True)
        return shifted if mounts.is_mounted(shifted) or self._mount_view(inside, source, shifted) else source

    def _source(self, image: ImageRoot, name: str, guarded: bool) -> Path:
        return self._root / name if guarded else image.binds.get(f"/{name}", image.layout / name)

    def unmount(self) -> None:
        """Unmount what ``mount`` has mounted. This comes before the disk, which lies below it."""
        for place in (self._root, self._shifted):
            mounts.unmount_tree(place)

    def _owner(self, inside: int = 0) -> int | None:
        """Return the host's id of a user inside; None if that is the daemon's own user."""
        return self._host.id_base + inside if self._host.privileged else None

    # -- its cgroups, which Docker names as it likes -------------------------------------------------------------------

    def note_cgroups(self, paths: Mapping[str, Path]) -> None:
        _write(self._cgroups, json.dumps({name: str(path) for name, path in paths.items()}))

    def cgroups(self) -> Mapping[str, Path]:
        """Return the sandbox's cgroups; none until the sandbox was started."""
        try:
            return {name: Path(path) for name, path in json.loads(self._cgroups.read_text()).items()}
        except (OSError, ValueError):
            return {}


def _write(path: Path, text: str) -> None:
    scratch = path.with_suffix(".new")
    scratch.touch(0o600)
    scratch.write_text(text)
    scratch.rename(path)
