"""The shape of the house: small folders, one meaning for each name, no import cycle, every package labelled."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import holdfast

ROOT = Path(holdfast.__file__).parent
REPOSITORY = ROOT.parents[1]
MOST_FILES = 16
MOST_LINES = 700

MODULES = {
    ".".join(("holdfast", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


@pytest.mark.parametrize("top", ["src/holdfast", "tests", "bench"])
def test_no_folder_has_more_files_than_one_can_keep_in_mind(top: str) -> None:
    counts = Counter(
        path.parent.relative_to(REPOSITORY).as_posix()
        for path in (REPOSITORY / top).rglob("*.py")
        if path.name != "__init__.py"
    )
    assert {folder: count for folder, count in counts.items() if count > MOST_FILES} == {}


def test_no_file_is_longer_than_one_can_read_at_a_sitting() -> None:
    lengths = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def test_each_public_class_name_has_one_meaning() -> None:
    """The SDK is left out: its classes show the user what the daemon's of the same name are."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for module, tree in TREES.items():
        if module.startswith("holdfast.sdk."):
            continue
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def test_no_module_imports_itself_by_way_of_others_not_even_for_its_types() -> None:
    graph = {name: set(_imports(name, tree)) - {name} for name, tree in TREES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_every_package_says_what_it_is_for() -> None:
    packages = {name: tree for name, tree in TREES.items() if MODULES[name].name == "__init__.py"}
    silent = [name for name, tree in packages.items() if not ast.get_docstring(tree)]
    assert silent == []


def _imports(module: str, tree: ast.Module) -> Iterator[str]:
    """Yield the modules of ours that this one imports, at its top, in functions and for its types."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else node.module
