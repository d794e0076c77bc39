"""Host names: exact, anchored, and nothing that only looks like one of ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.gateway.addresses import LOOPBACK, HostNames, SessionAddress
from holdfast.records.gateway import is_name

ID = "01m7rszc64pdf1xxmess68156r"
PLACE = SessionAddress("3000", f"ses_{ID}")
LOCAL = HostNames("localhost")
REAL = HostNames("sandbox.example.net:8443", ["Holdfast.example.com"])


@pytest.mark.parametrize(
    "host", [*LOOPBACK, "localhost:8080", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "holdfast.localhost:8080"]
)
def test_own_names(host: str) -> None:
    assert LOCAL.is_own(host)
    assert LOCAL.place(host) is None


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.",
        "localhost.evil.example",
        "xlocalhost",
        "127.0.0.1.evil.example",
        "127.0.0.2",
        "localhost:8080:9",
        "localhost:99999999",
        "localhost@evil.example",
        "[::2]",
        "localhost\n",
        " localhost",
        "holdfast.localhost.evil",
    ],
)
def test_names_of_others(host: str) -> None:
    assert not LOCAL.is_own(host)
    assert LOCAL.place(host) is None


def test_names_of_the_operator() -> None:
    assert REAL.is_own("holdfast.example.com")
    assert REAL.is_own("holdfast.example.com:443")
    assert not REAL.is_own("sandbox.example.net")
    assert not REAL.is_own("x.holdfast.example.com")


@pytest.mark.parametrize(
    ("host", "label"),
    [
        (f"3000--ses-{ID}.localhost:8080", "3000"),
        (f"3000--SES-{ID}.LocalHost", "3000"),
        (f"ide--ses-{ID}.localhost", "ide"),
        (f"my-app2--ses-{ID}.localhost", "my-app2"),
        (f"65535--ses-{ID}.localhost", "65535"),
    ],
)
def test_places(host: str, label: str) -> None:
    assert LOCAL.place(host) == SessionAddress(label, f"ses_{ID}")


@pytest.mark.parametrize(
    "host",
    [
        f"0--ses-{ID}.localhost",
        f"65536--ses-{ID}.localhost",
        f"03000--ses-{ID}.localhost",
        f"3000--ses-{ID}.localhost.",
        f"3000--ses-{ID}.localhost.evil",
        f"3000--ses-{ID}.evil.localhost",
        f"3000--ses-{ID}evil.localhost",
        f"x.3000--ses-{ID}.localhost",
        f"3000--ses-{ID[:-1]}.localhost",
        f"3000--ses-{ID}a.localhost",
        f"--ses-{ID}.localhost",
        f"-a--ses-{ID}.localhost",
        f"a---ses-{ID}.localhost",
        f"a--b--ses-{ID}.localhost",
        f"{'a' * 31}--ses-{ID}.localhost",
        f"3000--ses_{ID}.localhost",
        f"3000-ses-{ID}.localhost",
        f"3000--ses-{ID}.sandbox.example.net",
    ],
)
def test_no_places(host: str) -> None:
    assert LOCAL.place(host) is None
    assert not LOCAL.is_own(host)


def test_the_port_of_a_local_address_is_that_by_which_the_daemon_was_reached() -> None:
    assert LOCAL.url(PLACE, "127.0.0.1:8080") == f"http://3000--ses-{ID}.localhost:8080"
    assert LOCAL.url(PLACE, "[::1]:9") == f"http://3000--ses-{ID}.localhost:9"
    assert LOCAL.url(PLACE, "localhost") == f"http://3000--ses-{ID}.localhost"


def test_the_address_below_a_real_domain_is_the_operators() -> None:
    assert REAL.url(PLACE, "127.0.0.1:8080") == f"https://3000--ses-{ID}.sandbox.example.net:8443"
    assert HostNames("x.example", tls=False).url(PLACE, "a:1") == f"http://3000--ses-{ID}.x.example"


@given(st.text(alphabet="abz019-", min_size=1, max_size=31).filter(is_name))
def test_every_name_gives_an_address_that_leads_back(name: str) -> None:
    place = SessionAddress(name, f"ses_{ID}")
    host = LOCAL.url(place, "localhost:1").removeprefix("http://")
    assert LOCAL.place(host) == place
    assert len(place.first_label) <= 63


@given(st.text(max_size=80))
def test_any_text_is_own_or_a_place_or_nothing(host: str) -> None:
    assert not (LOCAL.is_own(host) and LOCAL.place(host) is not None)
