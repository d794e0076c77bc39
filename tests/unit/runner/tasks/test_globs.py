"""Patterns: by example, and against the plainest definition there is."""

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runner.tasks.globs import MAX_PARTS, Glob

NAMES = st.text("ab.", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
PARTS = st.sampled_from(["**", "*", "?", "a*", "*b", "[ab]", "[!a]*", ".*", "a", "b.a"])


def matches(pattern: str, path: str) -> bool:
    glob = Glob(pattern)
    states = glob.start()
    for name in path.split("/"):
        states = glob.step(states, name)
    return glob.accepts(states)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", "a.py", True),
        ("*.py", "d/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "d/e/a.py", True),
        ("src/**", "src", True),
        ("src/**", "src/a/b", True),
        ("src/**/test_*", "src/test_a", True),
        ("src/**/test_*", "lib/test_a", False),
        ("**/a/**/b", "x/a/y/z/b", True),
        ("**/a/**/b", "a/b", True),
        ("**/a/**/b", "b/a", False),
        ("*", ".hidden", True),
        ("[!.]*", ".hidden", False),
        ("a?c", "a/c", False),
        ("*", "new\nline", True),
        ("*.\udcff", "x.\udcff", True),
        ("**", "anything/at/all", True),
    ],
)
def test_examples(pattern: str, path: str, expected: bool) -> None:
    assert matches(pattern, path) is expected


@given(st.lists(PARTS, min_size=1, max_size=4), st.lists(NAMES, min_size=1, max_size=5))
def test_as_trying_every_way(parts: list[str], names: list[str]) -> None:
    assert matches("/".join(parts), "/".join(names)) == fits(parts, names)


def fits(parts: list[str], names: list[str]) -> bool:
    """The definition, as slow as it is plain."""
    if not parts:
        return not names
    if parts[0] == "**":
        return any(fits(parts[1:], names[count:]) for count in range(len(names) + 1))
    return bool(names) and fnmatch.fnmatchcase(names[0], parts[0]) and fits(parts[1:], names[1:])


@given(st.lists(PARTS, min_size=1, max_size=4), st.lists(NAMES, min_size=1, max_size=5))
def test_no_folder_is_skipped_that_has_a_match(parts: list[str], names: list[str]) -> None:
    glob = Glob("/".join(parts))
    states = glob.start()
    for depth, name in enumerate(names):
        states = glob.step(states, name)
        if depth + 1 < len(names) and fits(parts, names):
            assert glob.goes_deeper(states)


def test_a_folder_without_a_match_is_not_entered() -> None:
    glob = Glob("src/*.py")
    assert not glob.goes_deeper(glob.step(glob.start(), "lib"))
    assert not glob.goes_deeper(glob.step(glob.step(glob.start(), "src"), "a.py"))


@pytest.mark.parametrize("pattern", ["", "/", "/a", "../a", "a/../b", "./a", "/".join(["a"] * (MAX_PARTS + 1))])
def test_what_can_match_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="must"):
        Glob(pattern)
