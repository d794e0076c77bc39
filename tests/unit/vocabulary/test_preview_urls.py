import pytest

from holdfast.vocabulary.preview_urls import split_token


@pytest.mark.parametrize(
    "url, plain, token",
    [
        ("https://3000-abc.proxy.example/", "https://3000-abc.proxy.example/", None),
        ("https://3000-abc.proxy.example/?tkn=s3cret", "https://3000-abc.proxy.example/", "s3cret"),
        ("https://a.example/x?a=1&tkn=s3cret&b=%2F#top", "https://a.example/x?a=1&b=%2F#top", "s3cret"),
        ("https://a.example/x?t%6Bn=s%2Bcret", "https://a.example/x", "s+cret"),
        ("https://a.example/?tkn=&q", "https://a.example/?q", None),
        ("https://a.example/?tkn=one&tkn=two", "https://a.example/", "one"),
        ("https://a.example/?tknx=1&TKN=2", "https://a.example/?tknx=1&TKN=2", None),
        ("https://a.example/tkn=x", "https://a.example/tkn=x", None),
    ],
)
def test_a_token_does_not_stay_in_the_address(url: str, plain: str, token: str | None) -> None:
    assert split_token(url) == (plain, token)
    assert split_token(plain) == (plain, None)
