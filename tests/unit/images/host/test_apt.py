"""What is taken over from the host's apt: its mirrors of the distribution, its proxies, and nothing else."""

import pytest

from holdfast.images.host.apt import parse_options, parse_sources, sources
from holdfast.images.host.registries import variables

TARGETS = """http://mirror.test/debian/|bookworm|main
http://mirror.test/debian/|bookworm|contrib
http://mirror.test/debian/|bookworm-updates|main
http://mirror.test/debian/|bookworm-updates|main
http://mirror.test/security/|bookworm-security|main
http://mirror.test/debian/|bookworm-backports|main
https://third.test/node|nodistro|main
"""

DUMP = """APT::Architecture "amd64";
Acquire::http "";
Acquire::http::Proxy "http://proxy.test:3128";
Acquire::http::Proxy::mirror.test "DIRECT";
Acquire::https::CaInfo "/etc/ssl/own.crt";
Acquire::Check-Valid-Until "false";
Acquire::cdrom::mount "/media/cdrom";
Dir::Etc "etc/apt";
"""


def test_mirrors_of_the_distribution_alone() -> None:
    assert parse_sources(TARGETS, {"bookworm"}, "bookworm") == [
        "deb http://mirror.test/debian/ bookworm main",
        "deb http://mirror.test/debian/ bookworm-updates main",
        "deb http://mirror.test/security/ bookworm-security main",
    ]


def test_another_suite_from_the_same_mirrors() -> None:
    found = parse_sources(TARGETS, {"bookworm", "trixie"}, "trixie")
    assert found[0] == "deb http://mirror.test/debian/ trixie main"
    assert found[-1] == "deb http://mirror.test/security/ trixie-security main"
    assert parse_sources("", {"bookworm"}, "bookworm") == []


def test_a_mirror_that_was_given() -> None:
    assert sources("trixie", "http://own.test/debian") == ["deb http://own.test/debian trixie main"]


def test_proxies() -> None:
    assert parse_options(DUMP) == [
        'Acquire::http::Proxy "http://proxy.test:3128";',
        'Acquire::http::Proxy::mirror.test "DIRECT";',
        'Acquire::https::CaInfo "/etc/ssl/own.crt";',
        'Acquire::Check-Valid-Until "false";',
    ]


def test_installers_see_proxies_and_registries_and_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "https_proxy": "p",
        "PIP_INDEX_URL": "i",
        "NPM_CONFIG_REGISTRY": "r",
        "MODEL_API_KEY": "k",
    }.items():
        monkeypatch.setenv(name, value)
    found = variables()
    assert (found["https_proxy"], found["PIP_INDEX_URL"], found["npm_config_registry"]) == ("p", "i", "r")
    assert "k" not in found.values()
