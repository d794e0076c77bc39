"""One sandbox's own directory on the host: who may enter it, what is in it, and its OCI configuration.

Everything here blocks, for a few milliseconds; the driver calls it in a thread.
"""

import contextlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.drivers.base import SandboxSpec
from holdfast.drivers.disk.space import Space, make_directory
from holdfast.drivers.disk.tree_removal import remove_tree
from holdfast.drivers.linux import mounts
from holdfast.drivers.linux.ids import ID_BASE
from holdfast.drivers.linux.slirp import Slirp
from holdfast.drivers.linux.withheld import hide
from holdfast.drivers.oci import config as oci_config
from holdfast.drivers.oci.config import Host, OciPlaces
from holdfast.drivers.oci.views import source_of
from holdfast.records.limits import Network

_LOCAL_DEPTH = 4


class SandboxHome:
    """``<state>/oci/<session id>``: the disk, the configuration and the logs of one sandbox."""

    def __init__(self, directory: Path, host: Host) -> None:
        self._directory = directory
        self._host = host
        self._rootless = host.machine.rootless

    def fill(self, spec: SandboxSpec, space: Space, state_dir: Path, name: str) -> None:
        """Lay out the writable space on its disk, and write the configuration that the runtime starts from.

        What is there already was restored, and stays as the session has made it.
        """
        disk = space.disk.path
        places = OciPlaces(
            root=disk / "root" if spec.writable_root else spec.image.layout,
            workspace=space.workspace(),
            tmp=disk / "tmp",
            upper=disk / "upper",
            work=disk / "work",
            resolver=self._directory / "resolv.conf" if spec.network is Network.FULL else None,
        )
        space.lay_out(self._owner(self._host.inside_user(writable_root=spec.writable_root)))
        if not spec.writable_root:
            shut = self._shut(spec.image.binds)
            spec = replace(spec, image=replace(spec.image, masked=(*spec.image.masked, *shut)))
        else:
            self._make_layers(spec, places)
            self._hide({places.upper / inside.strip("/"): source for inside, source in spec.image.binds.items()})
            if self._host.gvisor:
                self._note_layers(spec, places)
        if spec.network is Network.FULL:
            Slirp(self._directory, rootless=self._rootless).write_resolver()
        self._write_config(oci_config.build(spec, self._host, places, state_dir, name))

    def _owner(self, inside: int = 0) -> int | None:
        """Return the host's id of a user inside; None if that is the daemon's own user, or the daemon may give it
        nothing."""
        return None if self._rootless else self._host.outside_id(inside)

    def _make_layers(self, spec: SandboxSpec, places: OciPlaces) -> None:
        """Make the session's own root, with a place to write for each directory of the image."""
        host, root = self._host, self._owner()
        for base in (places.root, places.upper, places.work):
            make_directory(base, root, 0o755)
        for name, lower in oci_config.layered_directories(spec.image).items():
            mode = lower.stat().st_mode & 0o7777
            is_new = make_directory(places.upper / name, root, mode)
            make_directory(places.work / name, root, 0o700)
            if is_new and not host.shifts_host and lower in spec.image.binds.values():
                self._own_directories(lower, places.upper / name)
        for entry in os.scandir(spec.image.layout):
            target = places.root / entry.name
            if entry.is_symlink():
                with contextlib.suppress(FileExistsError):
                    target.symlink_to(Path(entry.path).readlink())
            elif entry.is_dir(follow_symlinks=False):
                self._make_place(target)

    def _make_place(self, target: Path) -> None:
        """A directory in the session's own root, for a layer to be mounted on.

        The session may have had another image, without that name, and put a link there, which would lead the mount to
        a directory of the host.
        """
        if not stat.S_ISDIR(_mode(target)):
            remove_tree(target)
            make_directory(target, self._owner(), 0o755)

    # -- what the host has, and not everybody on it may read -----------------------------------------------------------

    def _shut(self, binds: Mapping[str, Path]) -> Iterator[str]:
        """What a read-only root has to mask. As root it is only what no mode shuts: its user owns nothing of the host.

        An ordinary user's sandboxes are that user.
        """
        host = self._host
        mine = {os.geteuid()}, {os.getegid(), *os.getgroups()}
        for inside, source in binds.items():
            for entry in host.withheld.of(source) if self._rootless else host.withheld.known(source):
                if entry.is_door or (self._rootless and (entry.uid in mine[0] or entry.gid in mine[1])):
                    yield f"{inside}/{entry.path}"

    def _hide(self, layers: Mapping[Path, Path]) -> None:
        """Hide in each layer what its directory of the host has for few."""
        for upper, source in layers.items():
            hide(self._host.withheld.of(source), source, upper, None if self._rootless else ID_BASE)

    def hide_again(self) -> None:
        """Hide what few may see before a sandbox with layers is started that was made some time ago. Raises OSError."""
        for *_sources, target in self.layers():
            self._make_place(target)
        layers = {Path(upper): source_of(Path(lower)) for lower, upper in self._overlays()}
        self._hide({upper: source for upper, source in layers.items() if source.parent == Path("/")})

    def mask_again(self) -> None:
        """Mask what few may see by now before a sandbox with a read-only root is started. Raises OSError."""
        config = self.config()
        if not config["root"]["readonly"]:
            return
        binds = {mount["destination"]: Path(mount["source"]) for mount in config["mounts"] if mount["type"] == "bind"}
        masked = config["linux"]["maskedPaths"]
        shown = {inside: source for inside, source in binds.items() if source.parent == Path("/")}
        if missing := [path for path in self._shut(shown) if path not in masked]:
            masked.extend(missing)
            self._write_config(config)

    def _overlays(self) -> Iterator[tuple[str, str]]:
        """Return the lower and the upper directory of each overlay, whoever mounts it."""
        yield from ((str(lower), str(upper)) for lower, upper, *_ in self.layers())
        for mount in self.config()["mounts"]:
            if mount["type"] == "overlay":
                options = dict(option.partition("=")[::2] for option in mount["options"])
                yield options["lowerdir"], options["upperdir"]

    # -- layers that the host mounts, for a kernel that cannot ---------------------------------------------------------

    def _note_layers(self, spec: SandboxSpec, places: OciPlaces) -> None:
        """Note where each directory of the image comes from, to be mounted whenever the sandbox is started."""
        lowers = oci_config.layered_directories(spec.image)
        layers = [
            [str(lower), str(places.upper / name), str(places.work / name), str(places.root / name)]
            for name, lower in lowers.items()
        ]
        (self._directory / "layers.json").write_text(json.dumps(layers))

    def unmount_layers(self) -> None:
        """Unmount the layers that earlier versions mounted on the host. This comes before the disk, which they lie on.
        Raises OSError."""
        for *_sources, target in self.layers():
            mounts.unmount_tree(target)

    def layers(self) -> list[list[Path]]:
        try:
            layers = json.loads((self._directory / "layers.json").read_text())
        except FileNotFoundError:
            return []
        except ValueError as error:
            raise OSError(f"{self._directory / 'layers.json'} is damaged: {error}") from error
        return [[Path(path) for path in layer] for layer in layers]

    def _own_directories(self, lower: Path, upper: Path, depth: int = 1) -> None:
        """Where the host's owners cannot be shifted, new files still can be made, in directories that the session owns.

        A directory in the upper layer gives the merged one its owner. The first level is enough for the system's
        own places; ``local`` is where people and package managers write, so there it goes deeper.
        """
        for entry in os.scandir(lower):
            if entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mode & 0o005 == 0o005:
                make_directory(upper / entry.name, self._owner(), entry.stat().st_mode & 0o7777)
                if depth > 1 or entry.name == "local":
                    self._own_directories(
                        Path(entry.path), upper / entry.name, depth - 1 if depth > 1 else _LOCAL_DEPTH
                    )

    def config(self) -> Any:
        """Return the configuration as it was written. Raises OSError."""
        try:
            return json.loads((self._directory / "config.json").read_text())
        except ValueError as error:
            raise OSError(f"{self._directory / 'config.json'} is damaged: {error}") from error

    def _write_config(self, config: oci_config.JsonObject) -> None:
        """Write the configuration. Only the owner may read it: the link's token is inside."""
        path, scratch = self._directory / "config.json", self._directory / "config.new"
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(config, file)
        scratch.rename(path)


def _mode(path: Path) -> int:
    """Return the mode of a file; 0 where nothing is."""
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return 0
