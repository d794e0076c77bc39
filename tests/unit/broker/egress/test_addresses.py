"""Addresses: internal ones are known in every disguise, and only the operator opens them."""

import ipaddress
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.egress.addresses import PrivateHosts, refusal
from holdfast.network.addresses import METADATA, NEVER, Address, is_public
from holdfast.network.surroundings import is_own

NOBODY = PrivateHosts()

INTERNAL = [
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254", "169.254.1.1",
    "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.51.100.1",
    "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "fc00::1", "fd12:3456::1", "fe80::1", "fec0::1", "ff02::1", "100::1", "2001::1", "2001:db8::1",
    "2001:10::1", "3fff::1", "5f00::1", "64:ff9b:1::1",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1",
          "2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888", "64:ff9b::8.8.8.8", "2002:808:808::1",
          "::ffff:8.8.8.8"]  # fmt: skip


@pytest.mark.parametrize("text", INTERNAL)
def test_internal(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_public(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


@given(st.ip_addresses(v=4))
def test_an_ipv6_address_is_what_it_carries(inner: ipaddress.IPv4Address) -> None:
    number = int(inner)
    for carrier in (0xFFFF << 32 | number, 0x0064FF9B << 96 | number, 0x2002 << 112 | number << 80):
        assert is_public(ipaddress.IPv6Address(carrier)) == is_public(inner)


@given(st.ip_addresses())
def test_what_python_calls_private_is_never_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        assert not is_public(address)


EVERYTHING = PrivateHosts.parse(["0.0.0.0/0", "::/0", "*.internal", "x.internal"])


def disguises(address: Address) -> list[Address]:
    """The same place, as other families write it."""
    if isinstance(address, ipaddress.IPv6Address):
        return [address]
    number = int(address)
    carriers = (0xFFFF << 32 | number, number, 0x0064FF9B << 96 | number, 0x2002 << 112 | number << 80)
    return [address, *(ipaddress.IPv6Address(carrier) for carrier in carriers if carrier > 1)]


@pytest.mark.parametrize("block", METADATA, ids=str)
def test_nobody_opens_metadata(block: ipaddress.IPv4Network | ipaddress.IPv6Network) -> None:
    for address in disguises(block[0]):
        found = refusal("x.internal", address, EVERYTHING)
        assert found is not None and "metadata" in str(found) and "no setting" in str(found), address


@pytest.mark.parametrize("block", NEVER, ids=str)
def test_nobody_opens_what_is_next_door(block: ipaddress.IPv4Network | ipaddress.IPv6Network) -> None:
    for address in (*disguises(block[0]), *disguises(block[-1])):
        assert refusal("x.internal", address, EVERYTHING) is not None, address
        assert not is_public(address)


def test_the_operator_opens_names_addresses_and_blocks() -> None:
    private = PrivateHosts.parse(["mirror.example", "*.intern.example", "10.20.0.0/16", "192.168.7.7", "fd00:1::/32"])
    inside = ipaddress.ip_address("10.1.1.1")
    assert refusal("other.example", inside, private)
    assert refusal("intern.example", inside, private)
    assert refusal("mirror.example", inside, private) is None
    assert refusal("a.b.intern.example", inside, private) is None
    for text in ("10.20.1.1", "192.168.7.7", "fd00:1::7"):
        assert refusal(text, ipaddress.ip_address(text), private) is None
        assert refusal(text, ipaddress.ip_address(text), NOBODY)
    assert "egress_private_hosts" in str(refusal("x.example", ipaddress.ip_address("192.168.7.8"), private))


@pytest.mark.parametrize("entry", ["10.0.0.1/8", "10.0.0.0/33", "a/b", "host:80", "*", "a b", ""])
def test_nonsense_of_the_operator_is_named(entry: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(entry))):
        PrivateHosts.parse(["good.example", entry])


def test_own_addresses_are_known() -> None:
    assert is_own(ipaddress.ip_address("127.0.0.1"))
    assert not is_own(ipaddress.ip_address("1.1.1.1"))
