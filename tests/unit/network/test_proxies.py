"""HTTPS_PROXY, HTTP_PROXY and NO_PROXY, as other programs understand them."""

import pytest
from structlog.testing import capture_logs
from yarl import URL

from holdfast.network.proxies import Proxies

BOTH = {"HTTP_PROXY": "http://one:3128", "https_proxy": "two:8080"}


def test_which_proxy_is_for_what() -> None:
    proxies = Proxies.from_environment(BOTH)
    assert str(proxies.find_for(URL("http://a.example/"))) == "http://one:3128"
    assert str(proxies.find_for(URL("https://a.example/"))) == "http://two:8080"
    assert Proxies.from_environment({}).find("https", "a.example", 443) is None
    only = Proxies.from_environment({"HTTPS_PROXY": "http://two:8080"})
    assert only.find("http", "a.example", 80) is None


@pytest.mark.parametrize(
    ("entry", "hosts", "others"),
    [
        ("*", ["a.example", "10.0.0.1"], []),
        ("example.com", ["example.com", "a.b.example.com"], ["badexample.com", "example.com.evil"]),
        (".example.com", ["example.com", "a.example.com"], ["example.org"]),
        ("*.example.com", ["a.example.com"], ["example.org"]),
        ("10.0.0.0/8", ["10.1.2.3"], ["11.0.0.1", "a.example"]),
        ("192.168.1.1", ["192.168.1.1"], ["192.168.1.2"]),
        ("a.example:443", ["a.example"], []),
        ("a.example:8443", [], ["a.example"]),
        ("", ["localhost", "127.0.0.2", "::1"], ["a.example"]),
    ],
)
def test_what_is_reached_without_one(entry: str, hosts: list[str], others: list[str]) -> None:
    proxies = Proxies.from_environment({**BOTH, "NO_PROXY": f" {entry.upper()} ,other.test"})
    assert [host for host in hosts if proxies.find("https", host, 443)] == []
    assert [host for host in others if not proxies.find("https", host, 443)] == []


def test_what_is_no_proxy_is_said_and_left_out() -> None:
    with capture_logs() as lines:
        proxies = Proxies.from_environment({"HTTPS_PROXY": "socks5://user:secret@h:1080", "HTTP_PROXY": "http://"})
    assert proxies == Proxies()
    assert len(lines) == 2 and "secret" not in str(lines)
