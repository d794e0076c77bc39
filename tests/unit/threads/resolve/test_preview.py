import pytest

from holdfast.threads.resolve.preview import stale


@pytest.mark.parametrize(
    ("status", "content_type", "expected"),
    [
        (401, "application/json", True),
        (403, "application/json", True),
        (404, "text/plain", True),
        (400, "text/html; charset=utf-8", True),
        (400, "application/json", False),
        (200, "text/html", False),
        (500, "text/html", False),
        (502, "text/html", False),
    ],
)
def test_which_answers_mean_that_the_preview_is_not_good_any_more(
    status: int, content_type: str, expected: bool
) -> None:
    assert stale(status, content_type) is expected
