"""What is next door to this machine, as the kernel's tables say it, and what follows for networks without a list."""

import ipaddress
from pathlib import Path

import pytest

from holdfast.broker.egress.addresses import PrivateHosts, refusal
from holdfast.network import surroundings
from holdfast.network.addresses import NEVER, closed_blocks
from holdfast.network.surroundings import Surroundings, neighbourhood

ROUTES_4 = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010A0719\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t000A0719\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
wg0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0
eth0\t0055F00C\t010A0719\t0003\t0\t0\t0\t00FFFFFF\t0\t0\t0
*\t00004064\t00000000\t0201\t0\t0\t0\t0000C0FF\t0\t0\t0
"""
ZERO = "0" * 32
ROUTES_6 = f"""\
2a0b00000000000700000000000000{"00"} 40 {ZERO} 00 {ZERO} 00000100 00000001 00000000 00000001     eth0
{ZERO} 00 {ZERO} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth0
00000000000000000000000000000001 80 {ZERO} 00 {ZERO} 00000000 00000002 00000000 80200001       lo
{ZERO} 00 {ZERO} 00 {ZERO} ffffffff 00000001 00000000 00200200       lo
"""


@pytest.fixture(autouse=True)
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with a public network on its cable, a gateway, a route behind it, and a tunnel to half of the world."""
    for name, text in (("_ROUTES_4", ROUTES_4), ("_ROUTES_6", ROUTES_6)):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(surroundings, name, tmp_path / name)


def test_only_what_needs_no_gateway_is_next_door() -> None:
    assert [str(network) for network in neighbourhood()] == ["25.7.10.0/24", "2a0b:0:0:7::/64"]


@pytest.mark.parametrize("text", ["25.7.10.9", "2a0b:0:0:7::9"])
def test_next_door_is_refused_unless_it_is_named(text: str) -> None:
    address = ipaddress.ip_address(text)
    private = PrivateHosts.parse([])
    assert private.around.stale
    assert refusal("x.example", address, private) is None, "nobody has looked"
    private.around.refresh()
    assert "this machine is part of" in str(refusal("x.example", address, private))
    named = PrivateHosts.parse([text])
    named.around.refresh()
    assert refusal("x.example", address, named) is None


def test_it_is_looked_at_again() -> None:
    around = Surroundings()
    around.refresh()
    assert not around.stale
    surroundings._ROUTES_4.write_text("")
    around.refresh()
    assert not around.include(ipaddress.ip_address("25.7.10.9"))


def test_closed_blocks() -> None:
    opened = [ipaddress.ip_network(text) for text in ("10.20.0.0/16", "169.254.0.0/16", "25.7.10.5", "0.0.0.0/5")]
    own = [ipaddress.ip_address("25.7.10.5"), ipaddress.ip_address("10.20.0.7"), ipaddress.ip_address("127.0.0.1")]
    closed = [ipaddress.ip_network(text) for text in closed_blocks(opened, neighbourhood(), own)]

    def is_closed(text: str) -> bool:
        return any(ipaddress.ip_address(text) in block for block in closed)

    for block in NEVER:
        if isinstance(block, ipaddress.IPv4Network):
            assert is_closed(str(block[0])) and is_closed(str(block[-1])), f"{block} was opened"
    assert is_closed("10.19.255.255") and is_closed("10.21.0.0") and is_closed("25.7.10.9") and is_closed("192.168.0.1")
    assert not is_closed("10.20.0.8") and not is_closed("1.1.1.1") and not is_closed("25.7.11.1")
    assert is_closed("10.20.0.7"), "the host itself is not opened with its network"
    assert not is_closed("25.7.10.5"), "but by its own address"
