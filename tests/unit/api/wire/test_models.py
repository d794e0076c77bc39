"""Replies from records: every field has its attribute, and what must be converted is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import pytest

from holdfast.api.wire.models import From, Output
from holdfast.api.wire.text import Timestamp


@dataclass(frozen=True)
class Part:
    name: str


@dataclass(frozen=True)
class Whole:
    at: float
    ended_at: float | None
    parts: Sequence[Part]
    best: Part | None
    words: Sequence[str]
    more: Mapping[str, int]
    hidden: str = "not told"
    inner: Part = field(default_factory=lambda: Part("inside"))


class PartOut(Output, record=Part):
    name: str


class WholeOut(Output, record=Whole):
    at: Timestamp
    ended_at: Timestamp | None
    parts: list[PartOut]
    best: PartOut | None
    words: list[str]
    more: dict[str, int]
    of_inner: Annotated[str, From("inner.name")]
    loud: Annotated[list[str], From("words", by=lambda words: [word.upper() for word in words])]


def test_each_field_comes_from_its_attribute() -> None:
    whole = Whole(0.5, None, (Part("a"), Part("b")), Part("c"), ("x",), {"n": 1})
    assert WholeOut.of(whole).model_dump() == {
        "at": "1970-01-01T00:00:00.500000Z",
        "ended_at": None,
        "parts": [{"name": "a"}, {"name": "b"}],
        "best": {"name": "c"},
        "words": ["x"],
        "more": {"n": 1},
        "of_inner": "inside",
        "loud": ["X"],
    }


@dataclass(frozen=True)
class Around:
    part: Part
    name_length: int
    missing: str | None = None


class AroundOut(Output, record=Around, inner="part"):
    name: str
    name_length: int
    missing: Annotated[str | None, From(by=str.upper)]


def test_what_a_record_does_not_have_is_read_from_its_inner_part() -> None:
    assert AroundOut.of(Around(Part("abc"), 3)).model_dump() == {"name": "abc", "name_length": 3, "missing": None}


def test_what_is_not_there_stays_null_and_what_is_there_is_converted() -> None:
    whole = WholeOut.of(Whole(0.0, 1.0, (), None, (), {}))
    assert (whole.ended_at, whole.best, whole.parts) == ("1970-01-01T00:00:01.000000Z", None, [])


def test_a_field_without_an_attribute_is_found_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match=r"WrongOut.nmae: Part has no attribute nmae"):

        class WrongOut(Output, record=Part):
            nmae: str
