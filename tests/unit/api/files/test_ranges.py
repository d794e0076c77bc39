"""Which part of a file a request is for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.files.ranges import FilePart, choose

TAG = '"1-a"'


@pytest.mark.parametrize(
    ("header", "size", "expected"),
    [
        ("bytes=0-4", 10, FilePart(206, 0, 5)),
        ("bytes=5-", 10, FilePart(206, 5, 5)),
        ("bytes=-3", 10, FilePart(206, 7, 3)),
        ("bytes=-30", 10, FilePart(206, 0, 10)),
        ("bytes=9-100", 10, FilePart(206, 9, 1)),
        ("Bytes = 0-0", 10, FilePart(206, 0, 1)),
        ("bytes=10-", 10, FilePart(416)),
        ("bytes=-0", 10, FilePart(416)),
        ("bytes=0-", 0, FilePart(416)),
        ("bytes=5-4", 10, FilePart(200, 0, 10)),
        ("bytes=-", 10, FilePart(200, 0, 10)),
        ("bytes=0-1,3-4", 10, FilePart(200, 0, 10)),
        ("lines=0-1", 10, FilePart(200, 0, 10)),
        ("bytes=" + "9" * 5000 + "-", 10, FilePart(200, 0, 10)),
        ("", 10, FilePart(200, 0, 10)),
    ],
)
def test_ranges(header: str, size: int, expected: FilePart) -> None:
    assert choose({"range": header}, size=size, etag=TAG) == expected


def test_conditions() -> None:
    def status(**headers: str) -> int:
        return choose({name.replace("_", "-"): text for name, text in headers.items()}, size=10, etag=TAG).status

    assert status(if_none_match=TAG) == status(if_none_match=f'"x", W/{TAG}') == status(if_none_match="*") == 304
    assert status(if_none_match='"other"') == 200
    assert status(range="bytes=1-2", if_range=TAG) == 206
    assert status(range="bytes=1-2", if_range='"other"') == 200


@given(st.text(max_size=30) | st.from_regex(r"bytes=\d{0,21}-\d{0,21}", fullmatch=True), st.integers(0, 1 << 50))
def test_a_part_is_always_inside(header: str, size: int) -> None:
    part = choose({"range": header}, size=size, etag=TAG)
    assert part.status in (200, 206, 416)
    assert 0 <= part.start <= part.start + part.count <= size
    assert (part.count > 0) or part.status == 416 or size == 0
