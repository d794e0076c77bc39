"""Fields of a frame's header are what they must be, or their names are in the error."""

from collections.abc import Callable

import pytest

from holdfast.protocol import fields
from holdfast.protocol.frames import Header


def test_what_is_there_is_given() -> None:
    header: Header = {"number": 7, "word": "seven", "map": {"a": "b"}, "nothing": None}
    assert fields.integer(header, "number") == fields.optional_integer(header, "number") == 7
    assert fields.text(header, "word") == fields.optional_text(header, "word") == "seven"
    assert fields.texts(header, "map") == {"a": "b"}
    assert fields.optional_integer(header, "nothing") is None
    assert fields.optional_text(header, "absent") is None
    assert fields.texts(header, "nothing") == {}


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (fields.integer, "7"),
        (fields.integer, True),
        (fields.integer, None),
        (fields.integer, 7.0),
        (fields.optional_integer, []),
        (fields.text, 7),
        (fields.text, None),
        (fields.optional_text, {}),
        (fields.texts, {"a": 1}),
        (fields.texts, ["a"]),
    ],
)
def test_what_is_of_another_kind_is_refused(read: Callable[[Header, str], object], value: object) -> None:
    with pytest.raises(TypeError, match="the_field must"):
        read({"the_field": value}, "the_field")
