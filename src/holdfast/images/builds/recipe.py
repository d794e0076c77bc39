"""What an image is built from: one small TOML file, checked when it is read, and known by the hash of all it says.

The hash covers the recipe, the contents of its files and the hash of the recipe that it builds upon; not where packages
are fetched from, nor when. The same hash means the same image, give or take the updates of a distribution.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Literal, cast, get_args

from holdfast.errors import BadInput
from holdfast.images.layout import USER
from holdfast.images.names import NAME, RULE
from holdfast.records.services import ServiceSpecs, read_services, services_to_wire

Variant = Literal["apt", "minbase", "essential", "extract"]

_FORMAT = 1  # goes into the hash: raise it when the same recipe comes to make something else
_DEPTH = 8
_FILE_BYTES = 64 << 20
_NAME_LENGTH = 63
_SUITE = re.compile(r"[a-z][a-z0-9-]*")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?(=[A-Za-z0-9.+~:-]+)?")
_PACKAGE_RULE = "a Debian package: git, or git=1:2.39.5-0+deb12u1"
_PIP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?==[A-Za-z0-9.!+_-]+")
_NPM = re.compile(r"(@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*@\d+\.\d+\.\d+[0-9A-Za-z.+-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_MODE = re.compile(r"0?[0-7]{3}")
_KEYS = (
    *("from", "with", "name", "suite", "variant", "packages", "build_packages", "pip", "npm"),
    *("files", "env", "commands", "user", "services"),
)


@dataclass(frozen=True, slots=True)
class RecipeFile:
    """A file that is put into the image, owned by root."""

    path: str
    content: bytes
    mode: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe that was found to make sense. ``origin`` is where it was read from; it is no part of the hash."""

    name: str
    origin: str
    parent: "Recipe | None" = None
    suite: str = ""
    variant: Variant = "apt"
    packages: Sequence[str] = ()
    build_packages: Sequence[str] = ()
    """There while it is built, and removed in the end with all that came with them."""
    pip: Sequence[str] = ()
    npm: Sequence[str] = ()
    files: Sequence[RecipeFile] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Of the image's sessions, and while it is built; with the parent's."""
    commands: Sequence[str] = ()
    user: str = USER
    services: ServiceSpecs = ()
    """Of the image's sessions; with the parent's."""

    @property
    def digest(self) -> str:
        said: dict[str, object] = {
            "format": _FORMAT,
            "from": self.parent.digest if self.parent else None,
            "suite": self.suite,
            "variant": self.variant,
            "packages": list(self.packages),
            "pip": list(self.pip),
            "npm": list(self.npm),
            "files": [(file.path, hashlib.sha256(file.content).hexdigest(), file.mode) for file in self.files],
            "env": dict(self.env),
            "commands": list(self.commands),
            "user": self.user,
            **({"build_packages": list(self.build_packages)} if self.build_packages else {}),
            **({"services": services_to_wire(self.services)} if self.services else {}),
        }
        if self.parent and self.parent.user != self.user:
            said["renames"] = self.parent.user  # an earlier version left the parent's name
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def chain(self) -> "list[Recipe]":
        """From the one that begins with nothing to this one."""
        return [*(self.parent.chain() if self.parent else []), self]


def shipped() -> list[str]:
    """Return the names of the recipes that come with the package, each after those that it builds upon."""
    names = [entry.name.removesuffix(".toml") for entry in _shelf().iterdir() if entry.name.endswith(".toml")]
    return sorted(names, key=lambda name: (len(load(name).chain()), name))


def load(wanted: str) -> Recipe:
    """Return the recipe of that name, or in that file. Raises ``BadInput``, which names the file and the key."""
    return _load(wanted, Path(), ())


def _shelf() -> Path:
    return Path(str(resources.files("holdfast.images") / "recipes"))


def _load(wanted: str, here: Path, above: Sequence[Path]) -> Recipe:
    path = here / wanted if "/" in wanted or wanted.endswith(".toml") else _shelf() / f"{wanted}.toml"
    path = path.absolute()
    if path in above or len(above) >= _DEPTH:
        raise BadInput(f"{above[-1]}: from: {wanted} comes back to itself, or more than {_DEPTH} deep")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInput(_unknown(wanted, above)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read ({error})") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: is not valid TOML: {error}") from error
    return _Reader(path, table).recipe(above)


def _unknown(wanted: str, above: Sequence[Path]) -> str:
    names = ", ".join(sorted(entry.stem for entry in _shelf().glob("*.toml")))
    by = f"{above[-1]}: from: " if above else ""
    return f"{by}there is no recipe {wanted}; there are {names}, or give the path of a .toml file"


class _Reader:
    """One file's table, key by key."""

    def __init__(self, path: Path, table: Mapping[str, object]) -> None:
        self._path = path
        self._table = table

    def recipe(self, above: Sequence[Path]) -> Recipe:
        if unknown := sorted(set(self._table) - set(_KEYS)):
            raise self._wrong(unknown[0], f"there is no such key; the keys are {', '.join(_KEYS)}")
        parent = self._parent((*above, self._path))
        for key in ("suite", "variant"):
            if parent and key in self._table:
                raise self._wrong(key, "is said by the recipe that begins, not by one with a from")
        return Recipe(
            name=self._text("name", self._path.stem, self._fits(NAME, RULE)),
            origin=str(self._path),
            parent=parent,
            suite=parent.suite if parent else self._text("suite", "bookworm", self._fits(_SUITE, "such as bookworm")),
            variant=parent.variant if parent else self._variant(),
            packages=self._list("packages", self._fits(_PACKAGE, _PACKAGE_RULE)),
            build_packages=self._build_packages(parent),
            pip=self._list("pip", self._fits(_PIP, "pinned: name==1.2.3")),
            npm=self._list("npm", self._fits(_NPM, "pinned: name@1.2.3")),
            files=self._files(),
            env={**(parent.env if parent else {}), **self._env()},
            commands=self._list("commands", self._no_nul),
            user=self._text("user", parent.user if parent else USER, self._fits(_USER, "a name for the user 1000")),
            services=self._services(parent.services if parent else ()),
        )

    def _parent(self, above: Sequence[Path]) -> Recipe | None:
        """What it builds upon: the recipe of ``from``, and on it what those of ``with`` have more."""
        origin = self._text("from", "")
        others = self._list("with", self._no_nul)
        if not origin:
            if others:
                raise self._wrong("with", "takes a from, to which these are added")
            return None
        parent = _load(origin, self._path.parent, above)
        done = {layer.digest for layer in parent.chain()}
        for number, wanted in enumerate(others):
            for layer in _load(wanted, self._path.parent, above).chain():
                if layer.digest not in done:
                    parent = self._added(layer, parent, f"with[{number}]")
                    done.add(layer.digest)
        return parent

    def _added(self, layer: Recipe, parent: Recipe, key: str) -> Recipe:
        """Return what a recipe says beyond its own parent, upon another one."""
        if layer.parent is None:
            raise self._wrong(key, f"{layer.name} begins with nothing and cannot be added to {parent.name}")
        try:
            services = read_services({**services_to_wire(parent.services), **services_to_wire(layer.services)})
        except BadInput as error:
            raise self._wrong(key, error.message) from None
        return replace(
            layer,
            name=f"{parent.name}-{layer.name}".replace(":", "-")[:_NAME_LENGTH],
            parent=parent,
            suite=parent.suite,
            variant=parent.variant,
            env={**parent.env, **layer.env},
            user=parent.user,
            services=services,
        )

    def _variant(self) -> Variant:
        value = self._text("variant", "apt")
        if value not in get_args(Variant):
            raise self._wrong("variant", f"must be one of {', '.join(get_args(Variant))}")
        return cast(Variant, value)

    def _build_packages(self, parent: Recipe | None) -> list[str]:
        if parent is None and "build_packages" in self._table:
            raise self._wrong("build_packages", "is for a recipe with a from; take base")
        return self._list("build_packages", self._fits(_PACKAGE, _PACKAGE_RULE))

    def _files(self) -> list[RecipeFile]:
        entries = self._table.get("files", [])
        if not isinstance(entries, list):
            raise self._wrong("files", "must be [[files]] tables with path, and source or content")
        return [self._file(number, entry) for number, entry in enumerate(entries)]

    def _file(self, number: int, entry: object) -> RecipeFile:
        key = f"files[{number}]"
        if not isinstance(entry, dict) or not set(entry) <= {"path", "source", "content", "mode"}:
            raise self._wrong(key, "must be a table with path, source or content, and mode")
        path, mode = entry.get("path"), entry.get("mode", "0644")
        if not isinstance(path, str) or not path.startswith("/") or ".." in path.split("/") or path.endswith("/"):
            raise self._wrong(f"{key}.path", "must be an absolute path in the image")
        if not isinstance(mode, str) or not _MODE.fullmatch(mode):
            raise self._wrong(f"{key}.mode", 'must be text such as "0644"')
        if ("source" in entry) == ("content" in entry):
            raise self._wrong(key, "must have either source, a file beside the recipe, or content")
        return RecipeFile(self._no_nul(f"{key}.path", path), self._content(key, entry), int(mode, 8))

    def _content(self, key: str, entry: Mapping[str, object]) -> bytes:
        if "content" in entry:
            content = entry["content"]
            if not isinstance(content, str):
                raise self._wrong(f"{key}.content", "must be text")
            return content.encode()
        try:
            with open(self._path.parent / str(entry["source"]), "rb") as file:
                data = file.read(_FILE_BYTES + 1)
        except OSError as error:
            raise self._wrong(f"{key}.source", f"{entry['source']} cannot be read ({error.strerror})") from error
        if len(data) > _FILE_BYTES:
            raise self._wrong(f"{key}.source", f"{entry['source']} is larger than {_FILE_BYTES >> 20} MB")
        return data

    def _env(self) -> dict[str, str]:
        table = self._table.get("env", {})
        if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
            raise self._wrong("env", 'must be a table of texts: NAME = "value"')
        for name, value in table.items():
            if not _VARIABLE.fullmatch(name) or name.startswith("HOLDFAST_"):
                raise self._wrong(f"env.{name}", "must consist of letters, digits and _; HOLDFAST_ is not for images")
            self._no_nul(f"env.{name}", value)
        return dict(table)

    def _services(self, inherited: ServiceSpecs) -> ServiceSpecs:
        try:
            own = read_services(self._table.get("services", {}), strict=True)
            return read_services({**services_to_wire(inherited), **services_to_wire(own)})
        except BadInput as error:
            raise BadInput(f"{self._path}: {error.message}") from None

    def _list(self, key: str, check: Callable[[str, str], str]) -> list[str]:
        values = self._table.get(key, [])
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise self._wrong(key, "must be a list of texts")
        return [check(f"{key}[{number}]", value) for number, value in enumerate(values)]

    def _text(self, key: str, default: str, check: Callable[[str, str], str] | None = None) -> str:
        value = self._table.get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "must be text")
        return check(key, value) if check else value

    def _fits(self, pattern: re.Pattern[str], allowed: str) -> Callable[[str, str], str]:
        def check(key: str, value: str) -> str:
            if not pattern.fullmatch(value):
                raise self._wrong(key, f"{value[:100]!r} must be {allowed}")
            return value

        return check

    def _no_nul(self, key: str, value: str) -> str:
        if "\0" in value:
            raise self._wrong(key, "must not contain a NUL character")
        return value

    def _wrong(self, key: str, what: str) -> BadInput:
        return BadInput(f"{self._path}: {key}: {what}")
