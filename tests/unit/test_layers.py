"""The host keeps its order: imports go down only, and what runs in a sandbox needs the standard library alone."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "holdfast"


def imported(file: Path) -> Iterator[str]:
    """The full name of every module that this file imports, wherever in the file."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), str(file))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports are written in full"
            module = node.module or ""
            # "from holdfast import errors" names its module last
            yield from (f"{module}.{alias.name}" if module == "holdfast" else module for alias in node.names)


def foreign(package: str, *allowed: str) -> list[str]:
    """Imports of a package that are neither its own, nor allowed, nor (of modules outside Holdfast) built in."""
    own = (f"holdfast.{package.replace('/', '.')}", *allowed)

    def fits(name: str) -> bool:
        if name.split(".")[0] != "holdfast":
            return name.split(".")[0] in sys.stdlib_module_names
        return any(name == prefix or name.startswith(f"{prefix}.") for prefix in own)

    files = sorted((PACKAGE / package).rglob("*.py"))
    assert files, f"there is no package {package}"
    return [f"{file.relative_to(ROOT)}: {name}" for file in files for name in imported(file) if not fits(name)]


def test_contracts_of_import_linter() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_runner_uses_the_standard_library_only() -> None:
    assert foreign("runner", "holdfast.protocol", "holdfast.archives", "holdfast.errors") == []


def test_the_protocol_uses_the_standard_library_only() -> None:
    assert foreign("protocol", "holdfast.errors") == []


def test_archives_use_the_standard_library_only() -> None:
    assert foreign("archives", "holdfast.errors") == []


def test_the_vocabulary_uses_the_standard_library_only() -> None:
    assert foreign("vocabulary", "holdfast.errors") == []


def test_what_the_scripted_agent_runs_inside_uses_the_standard_library_only() -> None:
    assert foreign("agents/scripted/inside", "holdfast.protocol.compact_json", "holdfast.protocol") == []


def test_the_sdk_knows_only_what_it_shares_with_the_daemon() -> None:
    found = foreign("sdk", "holdfast.protocol", "holdfast.vocabulary", "holdfast.archives", "holdfast.errors")
    assert [line for line in found if ": holdfast" in line] == []


@pytest.mark.parametrize("forbidden", ["import yaml", "from anyio import run", "from holdfast import store"])
def test_these_checks_would_see_it(forbidden: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runner").mkdir()
    (tmp_path / "runner" / "x.py").write_text(f"import os\n\ndef late() -> None:\n    {forbidden}\n")
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert len(foreign("runner", "holdfast.protocol")) == 1
