"""All images of one daemon, on disk, and the ways to list, resolve, import and remove them.

::

    <root>/.lock                    held for the short moments in which something becomes visible or goes away
    <root>/.tmp-…/                  an import or build under way; whoever works in it holds a lock on it
    <root>/<name>/meta.json         which tree is current; an image exists if, and only if, this file does
    <root>/<name>/<tree>/rootfs/    what a session's root is made of; never changed once it is there

An image with a tag is in ``<name>@<tag>``. A replaced tree stays until ``clean`` is told that no session uses it. A
crash leaves at most directories that nobody can see, which ``clean`` removes.
"""

import json
import secrets
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
from anyio import to_thread

from holdfast.drivers.base import ImageRoot
from holdfast.drivers.disk.standstill import sync
from holdfast.errors import BadInput, Conflict, HoldfastError, ImageInUse, ImageNotFound, UnknownImage
from holdfast.images.builds import enclosure
from holdfast.images.disk import Lock, write_file
from holdfast.images.host import host
from holdfast.images.names import RULE, canonical, directory_of, is_name, name_of
from holdfast.images.unpack import layers
from holdfast.images.unpack.budget import MAX_BYTES, Budget
from holdfast.images.unpack.importer import explained, import_root
from holdfast.records.services import ServiceSpecs, read_services, services_to_wire

HOST = "host"
ImageKind = Literal["host", "imported", "built"]
_TEMPORARY = ".tmp-"
_HOST_FRESH_SECONDS = 30.0
_RESOLVED_GRACE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """An image as people see it. ``digest`` is that of the tar, ``recipe`` the hash of what it came from, if so."""

    name: str
    kind: ImageKind
    size_bytes: int
    created_at: float
    digest: str | None
    recipe: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a tree comes from, and what it says about its sessions: their environment and services."""

    kind: ImageKind = "imported"
    recipe: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    digest: str | None = None
    """Where it has one already; else that of the tar is taken."""
    services: ServiceSpecs = ()


class ImageStore:
    """Images below ``root``. ``id_base`` is the host id of the sandboxes' root; None when rootless: nothing is chowned.

    Safe to use from many tasks, and from several processes on one ``root``. ``host_root`` and ``max_bytes`` (how much
    an import may unpack to) are rarely given.
    """

    def __init__(
        self, root: Path, *, id_base: int | None, host_root: Path = Path("/"), max_bytes: int = MAX_BYTES
    ) -> None:
        self.root = root.absolute()
        self.id_base = id_base
        self._host_root = host_root
        self._max_bytes = max_bytes
        self._host_lock = anyio.Lock()
        self._host: tuple[float, ImageRoot] | None = None
        self._resolved: dict[Path, float] = {}

    async def resolve(self, name: str) -> ImageRoot:
        """What a driver starts a session from. Raises ``UnknownImage``, which names the images that there are."""
        name = canonical(name)
        image = await (self._resolve_host() if name == HOST else to_thread.run_sync(self.root_of, name))
        self._resolved[image.layout] = time.monotonic()
        return image

    async def import_(self, name: str, source: Path | str, *, replace: bool = False) -> ImageInfo:
        """Make an image from a root file system: a tar (plain, gz, bz2, xz, zst) or a directory; from an archive of
        ``docker save`` or OCI, or an OCI layout; or, if ``source`` is a text, from a registry: ``docker://…``.

        Raises ``BadInput`` (the name, or what ``source`` is), ``Conflict`` when the name is taken and ``replace`` not
        set, ``TooLarge``, ``DiskFull``; for layers also ``ToolMissing`` and ``Unavailable``. After an error, or when
        cancelled before the end, nothing is kept.
        """
        budget = Budget(self._max_bytes)
        try:
            work = partial(self._import, canonical(name), source, replace, budget)
            return await to_thread.run_sync(work, abandon_on_cancel=True)
        finally:
            budget.cancel()  # no effect after the end; otherwise the thread stops at its next step and cleans up

    async def remove(self, name: str, in_use: Collection[str]) -> None:
        """Remove an image that no session uses. Raises ``ImageNotFound``, ``ImageInUse``; ``BadInput`` for ``host``."""
        await to_thread.run_sync(self._remove, canonical(name), {canonical(one) for one in in_use})

    async def clean(self, in_use: Collection[Path]) -> int:
        """Remove what crashes left, and replaced trees; returns how many directories went.

        ``in_use`` are the ``ImageRoot.layout`` of all sessions that exist.
        """
        return await to_thread.run_sync(self._clean, in_use)

    async def list(self) -> Sequence[ImageInfo]:
        """Return all images, ``host`` first."""
        await self._resolve_host()
        return await to_thread.run_sync(self._list)

    # -- for a builder, which blocks ----------------------------------------------------------------------------------

    @staticmethod
    def check_name(name: str) -> None:
        """Raises ``BadInput`` for what cannot be the name of a new image."""
        if not is_name(name):
            raise BadInput(f"name: {name[:250]!r} is no image name; use {RULE}")
        if name.partition(":")[0] == HOST:
            raise BadInput("name: 'host' is the host's own system and cannot be made; take another name")

    def root_of(self, name: str) -> ImageRoot:
        """As ``resolve``, but not for ``host``."""
        name = canonical(name)
        meta = self._read_meta(name) if is_name(name) else None
        if meta is None:
            known = ", ".join([HOST, *(other for other in self._names() if other != HOST)])
            raise UnknownImage(f"there is no image {name[:250]!r}; there are: {known}")
        return self._image_root(meta)

    def info(self, name: str) -> ImageInfo | None:
        meta = self._read_meta(name) if is_name(name) else None
        return meta.info if meta else None

    def built(self, recipe: str) -> ImageRoot | None:
        """Return an image that was built from the recipe with that hash, whatever its name."""
        return next((self._image_root(meta) for meta in self._metas() if meta.info.recipe == recipe), None)

    def adopt(
        self, name: str, source: Path, origin: Origin, *, replace: bool, budget: Budget | None = None
    ) -> ImageInfo:
        """Make an image, as ``import_`` does."""
        name = canonical(name)
        budget = budget or Budget(self._max_bytes)
        with explained(f"image {name!r}", self.root), self.workplace() as place:
            made = import_root(source, place, id_base=self.id_base, budget=budget)
            budget.check()
            info = ImageInfo(
                name, origin.kind, made.size_bytes, time.time(), origin.digest or made.digest, origin.recipe
            )
            tree = f"{time.time_ns():x}-{secrets.token_hex(4)}"
            self._commit(place, _Meta(info, tree, origin.env, origin.services), replace=replace)
        return info

    def sweep(self) -> None:
        """Remove what crashes left."""
        with self._locked():
            garbage = list(self._abandoned())
        for path in garbage:
            enclosure.remove(path)

    @contextmanager
    def workplace(self) -> Iterator[Path]:
        """A directory to build in, that ``clean`` leaves alone while we live, and that is gone afterwards."""
        with self._locked():
            place = self.root / f"{_TEMPORARY}{secrets.token_hex(8)}"
            place.mkdir(0o700)
            lock = Lock(place)
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)  # what resists is tried again later
            lock.release()

    @contextmanager
    def enclosed_place(self, name: str, mode: int) -> Iterator[Path]:
        """A directory in a workplace for enclosed programs, whose files may belong to other ids."""
        with self.workplace() as place:
            place.chmod(0o711)  # they run under other ids and must be able to pass through
            (place / name).mkdir(mode)
            try:
                yield place / name
            finally:
                enclosure.remove(place / name)

    # -- the parts ----------------------------------------------------------------------------------------------------

    async def _resolve_host(self) -> ImageRoot:
        async with self._host_lock:
            if self._host is None or time.monotonic() >= self._host[0]:
                image = await to_thread.run_sync(self._refresh_host)
                self._host = (time.monotonic() + _HOST_FRESH_SECONDS, image)
            return self._host[1]

    def _refresh_host(self) -> ImageRoot:
        wanted = host.plan(self._host_root, id_base=self.id_base)
        current = self._read_meta(HOST)
        if current is None or current.tree != wanted.fingerprint:
            with explained("the host image", self.root), self.workplace() as place:
                size = host.build(wanted, place, id_base=self.id_base)
                info = ImageInfo(HOST, "host", size, time.time(), None)
                self._commit(place, _Meta(info, wanted.fingerprint), replace=True)
        return ImageRoot(HOST, self._layout(HOST, wanted.fingerprint), wanted.binds, wanted.masked)

    def _image_root(self, meta: "_Meta") -> ImageRoot:
        return ImageRoot(meta.info.name, self._layout(meta.info.name, meta.tree), env=meta.env, services=meta.services)

    def _list(self) -> Sequence[ImageInfo]:
        return sorted((meta.info for meta in self._metas()), key=lambda info: (info.name != HOST, info.name))

    def _metas(self) -> Iterator["_Meta"]:
        return (meta for name in self._names() if (meta := self._read_meta(name)) is not None)

    def _import(self, name: str, source: Path | str, replace: bool, budget: Budget) -> ImageInfo:
        self.check_name(name)
        if isinstance(source, str):
            layers.check_reference(source)
            self._refuse_taken(name, replace)
            return self._import_layers(name, source, replace, budget)
        if source.is_dir() and self.root.resolve().is_relative_to(source.resolve()):
            raise BadInput(f"{source} contains the image store itself; import a directory that does not")
        self._refuse_taken(name, replace)
        try:
            return self.adopt(name, source, Origin(), replace=replace, budget=budget)
        except layers.LayersFound as found:
            return self._import_layers(name, found.source, replace, budget)

    def _import_layers(self, name: str, source: str, replace: bool, budget: Budget) -> ImageInfo:
        with explained(f"image {name!r}", self.root), self.enclosed_place("flat", 0o700) as place:
            flat = layers.flatten(source, place, budget)
            origin = Origin(env=flat.env, digest=flat.digest, services=flat.services)
            return self.adopt(name, flat.tar, origin, replace=replace, budget=budget)

    def _remove(self, name: str, in_use: Collection[str]) -> None:
        if name == HOST:
            raise BadInput("name: the 'host' image is always there and cannot be removed")
        with self._locked():
            if not is_name(name) or not self._meta_path(name).exists():
                raise ImageNotFound(f"there is no image {name[:250]!r}")
            if name in in_use:
                raise ImageInUse(f"image {name!r} is used by a session; destroy its sessions first")
            gone = self._put_away(self._home(name))
            sync(self.root)
        shutil.rmtree(gone, ignore_errors=True)

    def _clean(self, in_use: Collection[Path]) -> int:
        with self._locked():
            garbage = [*self._abandoned(), *(self._put_away(path) for path in list(self._unused(set(in_use))))]
        for path in garbage:
            enclosure.remove(path)  # without the lock: it may take a while
        return len(garbage)

    def _put_away(self, path: Path) -> Path:
        return path.rename(self.root / f"{_TEMPORARY}{secrets.token_hex(8)}")

    def _abandoned(self) -> Iterator[Path]:
        for path in self.root.glob(f"{_TEMPORARY}*"):
            lock = Lock.attempt(path)
            if lock is not None:
                lock.release()
                yield path

    def _unused(self, in_use: set[Path]) -> Iterator[Path]:
        recently = time.monotonic() - _RESOLVED_GRACE_SECONDS
        self._resolved = {path: at for path, at in self._resolved.copy().items() if at > recently}
        keep = in_use | self._resolved.keys()
        for home in (path for path in self.root.iterdir() if path.is_dir()):
            name = name_of(home.name)
            if name is None:
                continue
            try:
                meta = self._read_meta(name)
            except HoldfastError:
                continue  # a person must look at it: resolve says so
            trees = [path for path in home.iterdir() if path.is_dir()]
            unused = [tree for tree in trees if (not meta or tree.name != meta.tree) and tree / "rootfs" not in keep]
            if meta is None and unused == trees:
                yield home
            else:
                yield from unused

    def _refuse_taken(self, name: str, replace: bool) -> None:
        if not replace and self._meta_path(name).exists():
            raise Conflict(f"there is an image {name!r} already; remove it, replace it, or take another name")

    def _commit(self, place: Path, meta: "_Meta", *, replace: bool) -> None:
        """Make what is in ``place`` visible: all of it is on disk before its name is."""
        name = meta.info.name
        place.chmod(0o711)
        sync(place)
        with self._locked():
            self._refuse_taken(name, replace)
            home = self._home(name)
            home.mkdir(0o711, exist_ok=True)
            tree = home / meta.tree
            if not tree.exists():
                place.rename(tree)
            try:
                declared = {"env": dict(meta.env), "services": services_to_wire(meta.services)}
                content = {"tree": meta.tree, **declared, **asdict(meta.info)}
                write_file(self._meta_path(name), json.dumps(content, indent=1))
            except OSError:
                if not place.exists():
                    tree.rename(place)
                raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.root.mkdir(0o711, parents=True, exist_ok=True)
        lock_file = self.root / ".lock"
        lock_file.touch(0o600)
        lock = Lock(lock_file)
        try:
            yield
        finally:
            lock.release()

    def _names(self) -> Sequence[str]:
        found = (name_of(path.parent.name) for path in self.root.glob("*/meta.json"))
        return sorted(name for name in found if name is not None)

    def _read_meta(self, name: str) -> "_Meta | None":
        path = self._meta_path(name)
        try:
            raw = json.loads(path.read_text())
            tree, env = Path(raw.pop("tree")).name, {str(key): str(text) for key, text in raw.pop("env", {}).items()}
            services = read_services(raw.pop("services", {}))
            return _Meta(ImageInfo(**raw), tree, env, services)
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError, AttributeError, BadInput) as error:
            raise HoldfastError(f"{path} is damaged; remove {path.parent} and import the image again") from error

    def _meta_path(self, name: str) -> Path:
        return self._home(name) / "meta.json"

    def _layout(self, name: str, tree: str) -> Path:
        return self._home(name) / tree / "rootfs"

    def _home(self, name: str) -> Path:
        return self.root / directory_of(name)


@dataclass(frozen=True, slots=True)
class _Meta:
    """What ``meta.json`` holds."""

    info: ImageInfo
    tree: str
    env: Mapping[str, str] = field(default_factory=dict)
    services: ServiceSpecs = ()
