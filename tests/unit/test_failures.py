"""docs/failures.md promises nothing that no test proves."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "failures.md"
NAMED = re.compile(r"\[(\w+)\]\(\.\./(tests/[\w/]+\.py)\)")


def rows() -> list[str]:
    return [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][2:]


def names_in(path: Path) -> set[str]:
    found = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_there_are_rows() -> None:
    assert len(rows()) > 20


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.split("|")[1].strip())
def test_each_row_names_tests_that_exist(row: str) -> None:
    on_fakes, on_real = row.split("|")[-3:-1]
    named = NAMED.findall(on_fakes + on_real)
    assert named, "no test is named"
    for name, path in named:
        assert (ROOT / path).is_file(), f"there is no {path}"
        assert name in names_in(ROOT / path), f"there is no {name} in {path}"
