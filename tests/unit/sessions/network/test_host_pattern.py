"""Patterns of hosts: what they mean, that they mean nothing else, and that nonsense is named as such."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadInput
from holdfast.records.host_pattern import DEFAULT_PORTS, HostPattern, as_address, normalised_host, split_port
from holdfast.records.limits import Network
from holdfast.records.network import MAX_PATTERNS, NetworkPolicy

LABEL = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
NAME = st.lists(LABEL, min_size=1, max_size=5).map(".".join)
PORT = st.integers(1, 65535)
ADDRESS = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str)


@given(NAME | ADDRESS, PORT)
def test_a_host_means_itself(host: str, port: int) -> None:
    shown = f"[{host}]" if ":" in host else host
    assert HostPattern.parse(f"{shown}:{port}").matches(normalised_host(host), port)
    for usual in DEFAULT_PORTS:
        assert HostPattern.parse(host).matches(normalised_host(host), usual)


@given(NAME, NAME)
def test_a_host_means_no_other(host: str, other: str) -> None:
    assert HostPattern.parse(host).matches(other, 443) == (host == other)


@given(NAME, NAME, st.sampled_from(["", "."]))
def test_below_means_below(top: str, lower: str, dot: str) -> None:
    pattern = HostPattern.parse(f"*.{top}{dot}")
    assert pattern.matches(f"{lower}.{top}", 443)
    assert not pattern.matches(top, 443)
    for host in (lower, f"{lower}{top}", f"{top}.{lower}", f"{lower}-{top}"):
        labels, wanted = host.split("."), top.split(".")
        assert pattern.matches(host, 443) == (len(labels) > len(wanted) and labels[-len(wanted) :] == wanted)


@given(NAME, PORT, PORT)
def test_a_port_means_that_port(host: str, port: int, other: int) -> None:
    assert HostPattern.parse(f"{host}:{port}").matches(host, other) == (port == other)
    assert HostPattern.parse(host).matches(host, other) == (other in DEFAULT_PORTS)


@given(NAME | ADDRESS, st.booleans(), PORT | st.none())
def test_what_is_shown_is_the_same_pattern(host: str, below: bool, port: int | None) -> None:
    pattern = HostPattern(normalised_host(host), below and as_address(host) is None, port)
    assert HostPattern.parse(str(pattern)) == pattern


@given(st.text(max_size=40))
def test_any_text_is_a_pattern_or_a_value_error(text: str) -> None:
    try:
        pattern = HostPattern.parse(text)
    except ValueError:
        return
    assert normalised_host(pattern.host) == pattern.host
    assert pattern.host.isascii() and pattern.host == pattern.host.lower()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("PyPI.org", "pypi.org"),
        ("pypi.org.", "pypi.org"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER。example", "xn--bcher-kva.example"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("_dmarc.example", "_dmarc.example"),
    ],
)
def test_spellings_of_one_host(one: str, other: str) -> None:
    assert normalised_host(one) == other


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "*",
        "*.",
        "*:443",
        "*.*.example",
        "a..b",
        ".example",
        "exa mple.org",
        "example.org\n",
        "http://example.org",
        "example.org/path",
        "user@example.org",
        "example.org:",
        "example.org:0",
        "example.org:65536",
        "example.org:http",
        "example.org:+80",
        "127.1",
        "0x7f.1",
        "2130706433",
        "017700000001",
        "127.0.0.01",
        "\uff11\uff12\uff17.0.0.1",  # in full width, which IDNA makes 127
        "*.127.0.0.1",
        "fe80::1%eth0",
        "[::1",
        "[example.org]:80",
        "1::2::3",
        "-a.example",
        "a" * 64 + ".example",
        "a." * 127 + "aa",
        "\0",
    ],
)
def test_nonsense_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        NetworkPolicy.allowing([text])
    assert caught.value.message.startswith(f"network.allow: {text[:77]!r}"[:60])


def test_ports_and_brackets() -> None:
    assert split_port("a:1") == ("a", 1)
    assert split_port("::1") == ("::1", None)
    assert split_port("[::1]") == ("::1", None)
    assert split_port("[::1]:65535") == ("::1", 65535)


def test_policies_have_one_form_on_the_wire() -> None:
    for wire in ("none", "full", {"allow": ["pypi.org", "*.example.com:8443", "[2001:db8::1]:80", "192.0.2.1"]}):
        assert NetworkPolicy.from_wire(wire).to_wire() == wire
    assert NetworkPolicy.from_wire({"allow": ["PyPI.org."]}).to_wire() == {"allow": ["pypi.org"]}
    assert NetworkPolicy.from_wire({"allow": ["a.example"]}).network is Network.NONE


@pytest.mark.parametrize(
    "wire",
    [None, 1, "some", "", [], ["pypi.org"], {}, {"allow": "pypi.org"}, {"allow": [1]}, {"allow": []},
     {"allow": ["a.b"], "deny": []}, {"allow": ["a.b"] * (MAX_PATTERNS + 1)}, {"allow": ["a" * 301]}],
)  # fmt: skip
def test_other_forms_are_refused(wire: object) -> None:
    with pytest.raises(BadInput, match="network"):
        NetworkPolicy.from_wire(wire)


def test_a_policy_allows_what_one_of_its_patterns_allows() -> None:
    policy = NetworkPolicy.allowing(["pypi.org", "*.example.com:8443"])
    assert policy.allows("pypi.org", 443) and policy.allows("a.b.example.com", 8443)
    assert not policy.allows("pypi.org", 8443) and not policy.allows("example.com", 8443)
    assert not NetworkPolicy.NONE.allows("pypi.org", 443) and not NetworkPolicy.FULL.allows("pypi.org", 443)


def test_addresses_are_recognised() -> None:
    assert as_address("192.0.2.1") == ipaddress.ip_address("192.0.2.1")
    assert as_address("example.org") is None
