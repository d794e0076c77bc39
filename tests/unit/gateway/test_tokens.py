"""Tokens in a query: which is ours, and what is left when it is taken out."""

import jwt
import pytest

from holdfast.gateway.tokens import MOST_CHARACTERS, token_in, without_token

ID = "ses_01aaaaaaaaaaaaaaaaaaaaaaaa"


def signed(**claims: object) -> str:
    return jwt.encode(claims, "whoever has signed it, which is not looked at", algorithm="HS256")


OURS = signed(sub="ada", sid=ID, exp=1)
THEIRS = signed(sub="ada", sid="their own", exp=1)


def test_ours_is_taken_out_and_nothing_else_is_touched() -> None:
    query = f"a=%20+b&&token={OURS}&c&token={THEIRS}&token=short&x=%ff".encode()
    assert without_token(query, ID) == f"a=%20+b&&c&token={THEIRS}&token=short&x=%ff".encode()
    assert without_token(f"token={OURS}".encode(), ID) == b""
    assert without_token(f"%74oken={OURS.replace('.', '%2e')}&a".encode(), ID) == b"a"


@pytest.mark.parametrize("other", [THEIRS, signed(sub="ada"), signed(sid=[ID]), "a.b.c", "...", "theirs", ""])
def test_a_token_of_the_programs_own_is_left(other: str) -> None:
    query = f"token={other}&a=1".encode()
    assert without_token(query, ID) == query


def test_a_token_is_found_if_there_is_one() -> None:
    assert token_in(f"a=1&token={OURS}".encode()) == OURS
    assert token_in(f"token={OURS}&token={THEIRS}".encode()) is None
    for query in (b"", b"token=", b"token=theirs", b"token", b"tokens=a.b.c", b"\xff\xfe&token=a.b"):
        assert token_in(query) is None
        assert without_token(query, ID) == query


def test_what_is_too_large_is_nobodys() -> None:
    long = signed(sid=ID, pad="x" * MOST_CHARACTERS)
    many = (f"token={OURS}&" + "a&" * 1000).encode()
    for query in (f"token={long}".encode(), many):
        assert token_in(query) is None
        assert without_token(query, ID) == query
