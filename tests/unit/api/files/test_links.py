"""Tokens of signed links: good for what they were made for, and for nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.files.links import FileLinks
from holdfast.errors import BadLink

NOW = 1_700_000_000.0
LINKS = FileLinks(b"secret", lambda: NOW, lambda _key: True)
PATH = "/w/a\n\udcff b"


def token(method: str = "GET", expires: int = int(NOW) + 1, links: FileLinks = LINKS) -> str:
    return links.make("ses_1", PATH, method, expires, "key_1")


def test_opens_what_it_was_made_for() -> None:
    assert LINKS.open(token(), "GET") == LINKS.open(token(), "HEAD") == ("ses_1", PATH)
    assert LINKS.open(token("PUT"), "PUT") == ("ses_1", PATH)
    after_a_restart = FileLinks(b"secret", lambda: NOW, lambda _key: True)
    assert after_a_restart.open(token(), "GET") == ("ses_1", PATH)


@pytest.mark.parametrize(("made_for", "method"), [("GET", "PUT"), ("PUT", "GET"), ("PUT", "HEAD"), ("GET", "DELETE")])
def test_for_another_method(made_for: str, method: str) -> None:
    with pytest.raises(BadLink, match=f"for {made_for} only"):
        LINKS.open(token(made_for), method)


def test_expired() -> None:
    with pytest.raises(BadLink, match="expired"):
        LINKS.open(token(expires=int(NOW)), "GET")


def test_made_with_a_key_that_is_gone() -> None:
    gone = FileLinks(b"secret", lambda: NOW, lambda key: key != "key_1")
    with pytest.raises(BadLink, match="key that this link was made with is gone"):
        gone.open(token(), "GET")
    assert gone.open(gone.make("ses_1", PATH, "GET", int(NOW) + 1, "key_2"), "GET") == ("ses_1", PATH)


def test_of_another_secret() -> None:
    with pytest.raises(BadLink, match="not valid"):
        LINKS.open(token(links=FileLinks(b"other", lambda: NOW, lambda _key: True)), "GET")


@given(st.integers(0, len(token()) - 1), st.sampled_from("AZaz09-_"))
def test_every_character_counts(position: int, other: str) -> None:
    good = token()
    changed = good[:position] + other + good[position + 1 :]
    try:
        assert LINKS.open(changed, "GET") == ("ses_1", PATH)
    except BadLink:
        return
    assert changed[:-1] == good[:-1], "only unused bits of the last character may differ"


@given(st.text())
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(BadLink):
        LINKS.open(text, "GET")
