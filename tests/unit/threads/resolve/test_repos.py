"""What is told of a clone that failed."""

import pytest

from holdfast.threads.resolve.repos import complaint_of


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("", ""),
        ("warning: x\nfatal: no such ref\nfatal: more\n", "fatal: no such ref"),
        ("something else\n", "something else"),
        (
            "remote: Holdfast knows no git server a.example\nfatal: unable to access 'http://x/': error: 403",
            "Holdfast knows no git server a.example; fatal: unable to access 'http://x/': error: 403",
        ),
        ("remote: gone\n", "gone"),
        ("fatal: unable to access 'https://me:secret@x/'", "fatal: unable to access 'https://x/'"),
    ],
)
def test_a_complaint(said: str, told: str) -> None:
    assert complaint_of(said) == told
