"""Host names: the API answers to its own, a session to its addresses, and nobody to anything else."""

import pytest

from support.daemons.daemon import DaemonProcess
from support.gateway.raw import HANDSHAKE, exchange, raw
from support.gateway.visitor import Site

ID = "ses-01aaaaaaaaaaaaaaaaaaaaaaaa"
NOBODYS = [
    "evil.example",
    "localhost.evil.example",
    "localhost.",
    "127.0.0.1.",
    "127.0.0.2",
    "127.1",
    "2130706433",
    "0.0.0.0",
    "[::ffff:127.0.0.1]",
    "localhost:99999999",
    "localhost:",
    "localhost:80:80",
    "localhost@evil.example",
    "localhost,evil.example",
    "localhost/evil",
    "localhost evil",
    f"3000--{ID}.localhost.evil",
    f"3000--{ID}.localhost.",
    f"3000--{ID}.localhost.:80",
    f"x.3000--{ID}.localhost",
    f"0--{ID}.localhost",
    f"65536--{ID}.localhost",
    f"03000--{ID}.localhost",
    f"+3000--{ID}.localhost",
    f"3000--{ID}x.localhost",
    f"3000--{ID[:-1]}.localhost",
    f"3000%2d%2d{ID}.localhost",
    f"3000--{ID}.localhost%2eevil.example",
    "",
]
PATHS = [b"/", b"/healthz", b"/v1/sessions", b"/docs", b"/openapi.json", b"/metrics", b"/.holdfast/enter"]


@pytest.mark.parametrize("host", NOBODYS)
def test_a_name_of_nobody_reaches_nothing(site: Site, host: str) -> None:
    with raw(site) as visitor:
        for path in PATHS:
            bearer = f"Authorization: Bearer {site.daemon.key}".encode()
            status, _, body = visitor.ask(path, bearer, host=host).answer()
            assert status == 421 and b"misdirected" in body, path
            assert b"evil" not in body, "nothing is repeated"
    with raw(site) as visitor:
        assert visitor.ask(b"/v1/x/terminal", *HANDSHAKE, host=host).head().startswith(b"HTTP/1.1 421 ")


def test_upper_case_is_the_same_name(site: Site) -> None:
    host = site.host().upper().replace("LOCALHOST", "LocalHost")
    with raw(site) as visitor:
        assert visitor.ask(b"/page", host=host).answer()[0] == 200
    cookie = site.enter()
    headers = [b"Sec-Fetch-Site: same-origin", f"Origin: {site.origin()}".encode()]
    with raw(site) as visitor:
        assert visitor.ask(b"/page", *headers, host=host, cookie=cookie).answer()[0] == 200


def test_two_hosts_and_none(site: Site) -> None:
    key = f"X-Holdfast-Key: {site.daemon.key}"
    for hosts in ([site.host(), "localhost"], ["localhost", site.host()], [site.host()] * 2, ["localhost"] * 2, []):
        lines = ["GET /page HTTP/1.1", *(f"Host: {host}" for host in hosts), key, "Connection: close", "", ""]
        assert exchange(site, "\r\n".join(lines).encode()).startswith((b"HTTP/1.1 421 ", b"HTTP/1.1 400 ")), hosts


def test_the_target_is_not_the_host(site: Site) -> None:
    """Whatever an absolute target says: the header is what is looked at, and only the path goes in."""
    for named in ("localhost", "evil.example", site.host()):
        with raw(site) as visitor:
            status, _, _ = visitor.ask(f"http://{named}/v1/sessions".encode(), host="evil.example").answer()
            assert status == 421
    with raw(site) as visitor:
        status, _, body = visitor.ask(b"http://localhost/v1/sessions").answer()
        assert status == 200 and b'"path": "/v1/sessions"' in body, "it is the program's answer"


def test_dots_in_a_path_lead_nowhere(site: Site) -> None:
    for path in (b"/../v1/sessions", b"/%2e%2e/v1/sessions", b"/.holdfast/../v1/sessions", b"/.holdfast/%2e%2e/enter"):
        with raw(site) as visitor:
            bearer = f"Authorization: Bearer {site.daemon.key}".encode()
            status, _, body = visitor.ask(path, bearer, key=False).answer()
            assert status in (401, 404) and b"sessions" not in body


def test_pages_of_ours_do_not_repeat_what_was_asked(site: Site) -> None:
    evil = b"/.holdfast/<script>alert(1)</script>?x=<script>alert(2)</script>"
    for where in (evil, b"/<script>alert(1)</script>"):
        with raw(site) as visitor:
            lines = (b"Accept: text/html", b"Sec-Fetch-Mode: navigate", b"Sec-Fetch-Dest: document")
            status, headers, body = visitor.ask(where, *lines, key=False).answer()
            assert status in (401, 404) and b"alert" not in body
            assert "sandbox" in headers["content-security-policy"]


@pytest.mark.parametrize("proxies", [[], ["10.9.9.9"]])
def test_forwarded_names_are_believed_from_named_proxies_only(proxies: list[str]) -> None:
    with DaemonProcess(driver="process", trusted_proxies=proxies) as daemon:
        site = Site(daemon, "ses_01aaaaaaaaaaaaaaaaaaaaaaaa")
        said = b"X-Forwarded-Host: localhost\r\nX-Forwarded-Proto: https\r\nX-Forwarded-For: 127.0.0.1"
        bearer = f"Authorization: Bearer {daemon.key}".encode()
        with raw(site) as visitor:
            assert visitor.ask(b"/healthz", bearer, said, host="evil.example").answer()[0] == 421
        with raw(site) as visitor:
            said = f"X-Forwarded-Host: {site.host()}".encode()
            assert visitor.ask(b"/healthz", bearer, said, host="localhost").answer()[0] == 200


def test_a_named_proxy_is_believed() -> None:
    with DaemonProcess(driver="process", trusted_proxies=["127.0.0.1"]) as daemon:
        site = Site(daemon, "ses_01aaaaaaaaaaaaaaaaaaaaaaaa")
        bearer = f"Authorization: Bearer {daemon.key}".encode()
        with raw(site) as visitor:
            assert visitor.ask(b"/healthz", bearer, b"X-Forwarded-Host: localhost", host="inside").answer()[0] == 200
        with raw(site) as visitor:
            said = f"X-Forwarded-Host: localhost, {site.host()}".encode()
            assert visitor.ask(b"/healthz", bearer, said, host="localhost", key=False).answer()[0] == 401
