"""Builds images from recipes with mmdebstrap, enclosed, into an image store. Blocking: for a process of one's own.

::

    <root>/.builds/<hash>.lock          whoever builds that recipe holds it; a second build waits, and takes the result
    <root>/.builds/<name>-<hash>.log    all that the last build of that recipe said
    <root>/.tmp-…/build/                where it is built; gone afterwards

An image is there when its tree and its name are, and not before: a build that fails or is killed leaves the log alone.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import BuildFailed, Conflict, Unavailable
from holdfast.images.builds import enclosure
from holdfast.images.builds.log import BuildLog, Tell
from holdfast.images.builds.recipe import Recipe
from holdfast.images.builds.script import MIRRORS, Lent, script
from holdfast.images.disk import Lock
from holdfast.images.exporter import write_tar
from holdfast.images.host import apt, registries
from holdfast.images.names import canonical, directory_of
from holdfast.images.store import ImageInfo, ImageStore, Origin

HOUR = 3600.0
_TOOLS = ("mmdebstrap", "tar")
_POLL_SECONDS = 0.2
_SLIM = (
    "force-unsafe-io",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-include=/usr/share/locale/locale.alias",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
)


@dataclass(frozen=True, slots=True)
class Built:
    """``cached`` when it was there already."""

    info: ImageInfo
    cached: bool


class Builder:
    """``mirror`` is where Debian packages come from, if not from where the host gets its own."""

    def __init__(self, store: ImageStore, *, tell: Tell, mirror: str | None = None, seconds: float = HOUR) -> None:
        self._store = store
        self._tell = tell
        self._mirror = mirror
        self._seconds = seconds
        self._fresh: set[str] = set()
        """The recipes that were built by this builder: once is enough, also if several are to be built anew."""

    def build(self, recipe: Recipe, name: str, *, rebuild: bool = False, replace: bool = False) -> Built:
        """Make image ``name``, and the images that it builds upon, unless they are there.

        ``rebuild``: also those that are. An earlier build of that name is replaced; an image that was imported only if
        ``replace``. Raises ``BuildFailed``, ``ToolMissing``, ``Conflict``, and what an import raises.
        """
        name = canonical(name)
        self._store.check_name(name)
        self._refuse_foreign(name, replace)
        present = self._store.info(name)
        if not rebuild and present is not None and present.recipe == recipe.digest:
            return Built(present, cached=True)  # also if one that it builds upon was removed
        self._store.sweep()
        deadline = time.monotonic() + self._seconds
        for parent in recipe.chain()[:-1]:
            if self._is_due(parent, rebuild) or self._store.built(parent.digest) is None:
                self._refuse_foreign(parent.name, False)
                self._build_one(parent, parent.name, deadline, rebuild=rebuild)
        return self._build_one(recipe, name, deadline, rebuild=self._is_due(recipe, rebuild))

    def _is_due(self, recipe: Recipe, rebuild: bool) -> bool:
        return rebuild and recipe.digest not in self._fresh

    def _build_one(self, recipe: Recipe, name: str, deadline: float, *, rebuild: bool) -> Built:
        with self._only_one(recipe, name, deadline):
            present = self._store.info(name)
            if not rebuild and present is not None and present.recipe == recipe.digest:
                return Built(present, cached=True)
            enclosure.need_tools(*_TOOLS)
            path = self._books() / f"{directory_of(name)}-{recipe.digest[:12]}.log"
            with BuildLog(path, name, self._tell) as log, self._store.enclosed_place("build", 0o755) as build:
                self._run(recipe, build, log, deadline)
                log.step("taking it into the store")
                origin = Origin("built", recipe.digest, dict(recipe.env), services=recipe.services)
                info = self._store.adopt(name, build / "root.tar", origin, replace=True)
        self._fresh.add(recipe.digest)
        return Built(info, cached=False)

    def _run(self, recipe: Recipe, build: Path, log: BuildLog, deadline: float) -> None:
        log.step(f"recipe {recipe.digest[:12]} from {recipe.origin}")
        files = build / "files"
        files.mkdir()
        for number, file in enumerate(recipe.files):
            (files / str(number)).write_bytes(file.content)
        finish = build / "finish"
        finish.write_text(script(recipe, files, Lent(registries.variables(), registries.certificates())))
        argv = self._command(recipe, build, finish)
        for path in build.iterdir():
            path.chmod(0o700)  # proxies and mirrors may have passwords in their names
        enclosure.own(build)
        seconds = max(1.0, deadline - time.monotonic())
        env = {"TMPDIR": str(build)}
        status = enclosure.run(argv, env=env, seconds=seconds, hear=log.hear, check=lambda: None)
        if status != 0:
            raise BuildFailed(f"building {recipe.name} failed. The end of its log, {log.path}:\n{log.tail()}")

    def _command(self, recipe: Recipe, build: Path, finish: Path) -> list[str]:
        """What begins with nothing is bootstrapped; what has a parent is unpacked from it, and added to."""
        last = "customize"
        if recipe.parent is None:
            last = "extract" if recipe.variant == "extract" else last  # in this variant nothing comes after
            how = [f"--variant={recipe.variant}"]
            how += [f"--include={','.join(recipe.packages)}"] if recipe.packages else []
        else:
            base = self._store.built(recipe.parent.digest)
            if base is None:
                raise Conflict(f"image {recipe.parent.name} was removed while {recipe.name} was built; try again")
            with open(build / "parent.tar", "wb") as out:
                write_tar(base.layout, out, id_base=self._store.id_base)
            unpack = f'tar --numeric-owner -C "$1" -xpf {build}/parent.tar && rm {build}/parent.tar'
            how = ["--variant=custom", f"--setup-hook={unpack}"]
            how += [] if recipe.packages or recipe.build_packages else ["--skip=update"]
        # in files and not in arguments, which everybody on the host can see
        sources = apt.sources(recipe.suite, self._mirror)
        (build / "apt.conf").write_text("".join(f"{line}\n" for line in apt.options()))
        (build / MIRRORS).write_text("".join(f"{line}\n" for line in sources))
        return [
            *("mmdebstrap", "--mode=root", "--format=tar", "--verbose", "--skip=output/dev", *how),
            f"--aptopt={build / 'apt.conf'}",
            *(f"--dpkgopt={line}" for line in _SLIM),
            f"--{last}-hook={finish}",
            recipe.suite,
            str(build / "root.tar"),
            *([str(build / MIRRORS)] if sources else []),
        ]

    def _refuse_foreign(self, name: str, replace: bool) -> None:
        present = self._store.info(name)
        if present is not None and present.kind != "built" and not replace:
            raise Conflict(f"image {name!r} was imported, not built; say --replace, or take another --name")

    @contextmanager
    def _only_one(self, recipe: Recipe, name: str, deadline: float) -> Iterator[None]:
        path = self._books() / f"{recipe.digest[:32]}.lock"
        path.touch(0o600)
        told = False
        while (lock := Lock.attempt(path)) is None:
            if time.monotonic() > deadline:
                raise Unavailable(f"another build of {recipe.name} has not ended in time; try again later")
            if not told:
                self._tell(name, "waiting for another build of the same recipe")
                told = True
            time.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            lock.release()

    def _books(self) -> Path:
        path = self._store.root / ".builds"
        path.mkdir(0o700, parents=True, exist_ok=True)
        return path
