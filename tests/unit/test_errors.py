"""The error tree: the drawing in the docstring is the truth about the classes, and codes find their way back."""

import re
from collections import Counter
from http import HTTPStatus

import pytest

from holdfast import errors
from holdfast.errors import HoldfastError, by_code

Row = tuple[int, str, str, int]  # depth, class, code, HTTP status


def below(root: type[HoldfastError], depth: int = 0) -> list[tuple[int, type[HoldfastError]]]:
    """The tree of classes in this module, depth first, in the order of their definition."""
    children = [child for child in root.__subclasses__() if child.__module__ == errors.__name__]
    return [(depth, root), *(row for child in children for row in below(child, depth + 1))]


def drawn() -> list[Row]:
    rows = re.findall(r"^ {4}([│├└─ ]*)(\w+) +(\w+) +(\d{3})$", errors.__doc__ or "", re.MULTILINE)
    return [(len(branch) // 4, name, code, int(status)) for branch, name, code, status in rows]


CLASSES = [cls for _, cls in below(HoldfastError)]


def test_the_drawing_is_the_tree() -> None:
    assert drawn() == [(depth, cls.__name__, cls.code, cls.status) for depth, cls in below(HoldfastError)[1:]]


def test_codes_are_unique() -> None:
    counts = Counter(cls.code for cls in CLASSES)
    assert [code for code, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("cls", CLASSES)
def test_class(cls: type[HoldfastError]) -> None:
    assert by_code(cls.code) is cls
    assert re.fullmatch(r"[a-z_]+", cls.code)
    assert HTTPStatus(cls.status) >= 400
    assert cls("what happened").message == "what happened"
    assert cls().message == cls.__name__


def test_the_code_of_a_newer_version_is_a_plain_error() -> None:
    assert by_code("invented_tomorrow") is HoldfastError
