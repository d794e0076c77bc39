"""The runtime bundle: all that the runner needs, so that an image needs nothing.

A directory that is mounted read-only at ``/.holdfast`` in every sandbox:

    lib/          the loader, the interpreter's libraries, and the few modules of the standard library that we use:
                  the runner's in an archive, which loads fastest, those that only workers need as files beside it
    bin/python    the interpreter that the daemon itself runs on
    bin/bash      for images that have no bash
    runner.zip    the runner, compiled
    link/ run/    mount points: the link's socket, the runner's private files

It starts by way of its own loader, so that the image's libc does not matter. It is made once per version of all that
went into it, and never changed: running sandboxes keep the one that they started with.
"""

import hashlib
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import holdfast
from holdfast.errors import RuntimeUnavailable

MOUNT_POINT = "/.holdfast"
LINK_DIR = f"{MOUNT_POINT}/link"
RUN_DIR = f"{MOUNT_POINT}/run"
_RUNNER = ("holdfast.runner.__main__", "encodings.ascii", "encodings.latin_1")
_PACKAGES = ("protocol", "archives", "runner")
# Not by naming the archive: that would go through runpy, which imports as much as all the rest.
_START = (
    f"import sys; sys.path.insert(0, '{MOUNT_POINT}/runner.zip'); from holdfast.runner.__main__ import main; main()"
)
_LOADER = re.compile(r"^ld(-linux|-musl|64)?[-.\w]*\.so(\.\d+)?$")


@dataclass(frozen=True, slots=True)
class RuntimeBundle:
    """A finished bundle, as a driver uses it. Paths in the commands are those inside the sandbox."""

    path: Path
    loader: str
    has_bash: bool

    def runner_argv(self) -> list[str]:
        return [*self._load("python"), "-I", "-S", "-X", "frozen_modules=on", "-c", _START]

    def bash_argv(self) -> list[str]:
        """Return how to start the bundle's bash; nothing if it has none."""
        if not self.has_bash:
            return []
        start = self._load("bash")
        return [start[0], "--argv0", "bash", *start[1:]]

    def _load(self, program: str) -> list[str]:
        lib = f"{MOUNT_POINT}/lib"
        return [f"{lib}/{self.loader}", "--library-path", lib, f"{MOUNT_POINT}/bin/{program}"]


def build(root: Path) -> RuntimeBundle:
    """Return the bundle for this version, made under ``root`` unless it is there. This blocks, for about a second when
    it is new."""
    target = root / _fingerprint()
    if not target.exists():
        root.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=root))
        try:
            _fill(scratch)
            scratch.chmod(0o755)
            _take_place(scratch, target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    facts = json.loads((target / "bundle.json").read_text())
    return RuntimeBundle(path=target, loader=facts["loader"], has_bash=facts["has_bash"])


def _take_place(scratch: Path, target: Path) -> None:
    try:
        scratch.rename(target)
    except OSError:
        if not target.exists():  # otherwise another daemon was quicker, with the same content
            raise


def _interpreter() -> Path:
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def _fingerprint() -> str:
    digest = hashlib.sha256(f"{holdfast.__version__} {sys.version}".encode())
    for program in (_interpreter(), *_bash()):
        info = program.stat()
        digest.update(f"{program} {info.st_size} {info.st_mtime_ns}".encode())
    for source in _runner_sources():
        digest.update(source.read_bytes())
    digest.update(Path(__file__).read_bytes())
    return digest.hexdigest()[:16]


def _bash() -> list[Path]:
    found = shutil.which("bash", path="/bin:/usr/bin:/usr/local/bin")
    return [Path(found).resolve()] if found else []


def _runner_sources() -> list[Path]:
    package = Path(holdfast.__file__).parent
    inside = [path for name in _PACKAGES for path in sorted((package / name).rglob("*.py"))]
    return [package / "__init__.py", package / "errors.py", *inside]


def _fill(scratch: Path) -> None:
    for name in ("bin", "lib", "link", "run"):
        (scratch / name).mkdir()
    programs = {"python": _interpreter()}
    for bash in _bash():
        programs["bash"] = bash
    for name, path in programs.items():
        shutil.copy2(path, scratch / "bin" / name)
    extensions = _copy_standard_library(scratch)
    _write_runner(scratch / "runner.zip")
    loader = _copy_libraries([*programs.values(), *extensions], scratch / "lib")
    facts = {"loader": loader, "has_bash": "bash" in programs}
    (scratch / "bundle.json").write_text(json.dumps(facts))
    _make_readable(scratch)


def _copy_standard_library(scratch: Path) -> list[Path]:
    """The modules that the runner really imports, asked from the interpreter; returns the C extensions among them."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    stdlib = scratch / "lib" / version
    dynload = stdlib / "lib-dynload"
    dynload.mkdir(parents=True)
    shutil.copy2(os.__file__, stdlib / "os.py")  # how the interpreter recognises its library
    extensions = []
    archive = scratch / "lib" / f"{version.replace('.', '')}.zip"
    runner = dict(_imported_modules(_RUNNER))
    workers = dict(_imported_modules((*_RUNNER, *_worker_modules())))
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as zipped:
        for name, origin in workers.items():
            if origin.suffix == ".so":
                shutil.copy2(origin, dynload / origin.name)
                extensions.append(origin)
                continue
            inside = name.replace(".", "/") + ("/__init__" if origin.name == "__init__.py" else "") + ".pyc"
            if name in runner:
                zipped.writestr(inside, _compiled(origin, f"<{name}>"))
            else:
                (stdlib / inside).parent.mkdir(exist_ok=True)
                (stdlib / inside).write_bytes(_compiled(origin, f"<{name}>"))
    return extensions


def _worker_modules() -> list[str]:
    tasks = Path(holdfast.__file__).parent / "runner" / "tasks"
    return [f"holdfast.runner.tasks.{path.stem}" for path in sorted(tasks.glob("*.py"))]


def _imported_modules(wanted: Sequence[str]) -> list[tuple[str, Path]]:
    """Name and file of each module of the standard library that is loaded once these are."""
    probe = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "for name in sys.argv[2:]: __import__(name)\n"
        "for name, module in list(sys.modules.items()):\n"
        "    origin = getattr(getattr(module, '__spec__', None), 'origin', None)\n"
        "    path = getattr(module, '__file__', None) or origin\n"
        "    ours = name.startswith(('holdfast', '__main__'))\n"
        "    if path and path.endswith(('.py', '.so')) and origin != 'frozen' and not ours:\n"
        "        print(name, path, sep='\\t')\n"
    )
    source = Path(holdfast.__file__).parent.parent
    command = [str(_interpreter()), "-I", "-S", "-c", probe, str(source), *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise RuntimeUnavailable(f"the runner does not import under {_interpreter()}: {done.stderr.strip()[-300:]}")
    return [(name, Path(path)) for name, path in (line.split("\t") for line in done.stdout.splitlines())]


def _compiled(source: Path, shown_as: str) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "module.pyc"
        py_compile.compile(
            str(source),
            cfile=str(target),
            dfile=shown_as,
            doraise=True,
            optimize=2,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        return target.read_bytes()


def _write_runner(target: Path) -> None:
    package = Path(holdfast.__file__).parent
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as zipped:
        for source in _runner_sources():
            inside = Path("holdfast") / source.relative_to(package)
            zipped.writestr(str(inside.with_suffix(".pyc")), _compiled(source, f"<{inside}>"))


def _copy_libraries(binaries: list[Path], target: Path) -> str:
    """Copy all shared libraries that these need, and the loader; return the loader's name."""
    loader = ""
    for binary in binaries:
        for library in _needed_libraries(binary):
            name = library.name
            if _LOADER.match(name):
                loader = name
            if not (target / name).exists():
                shutil.copy2(library.resolve(), target / name)
    if not loader:
        raise RuntimeUnavailable(f"{_interpreter()} has no dynamic loader; use an ordinary build of Python")
    return loader


def _needed_libraries(binary: Path) -> list[Path]:
    try:
        done = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        raise RuntimeUnavailable("ldd is not installed; install the package libc-bin") from None
    return [Path(path) for path in re.findall(r"(?:=>\s+|^\s+)(/\S+)\s+\(0x", done.stdout, re.MULTILINE)]


def _make_readable(root: Path) -> None:
    """Make the bundle readable for everybody: sandboxes run under other user ids."""
    for path in root.rglob("*"):
        if path.is_dir() or path.parent.name == "bin" or _LOADER.match(path.name):
            path.chmod(0o755)
        else:
            path.chmod(0o644)
