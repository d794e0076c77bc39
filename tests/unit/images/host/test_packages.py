"""What of the host's apt is taken into the ``host`` image: the distribution's own sources, and no secret."""

from pathlib import Path

import pytest

from holdfast.images.host import host, packages

SOURCES = """\
Types: deb deb-src
# a comment
URIs: http://deb.debian.org/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://user:secret@mirror.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: https://off.example/debian
Suites: bookworm
Components: main
Enabled: no
"""
LINES = """\
# deb http://old.example/debian bookworm main
deb [arch=amd64 signed-by=/etc/apt/keyrings/own.gpg] https://own.example/debian bookworm-security main # a comment
deb https://download.docker.example/linux/debian bookworm stable
deb http://deb.nodesource.example/node_20.x nodistro main
deb-src http://deb.debian.org/debian bookworm main
deb file:///srv/mirror bookworm main
"""


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    root = tmp_path / "host"
    for path, text in {
        "etc/os-release": 'ID=debian\nVERSION_CODENAME="bookworm"\n',
        "etc/apt/sources.list.d/debian.sources": SOURCES,
        "etc/apt/sources.list": LINES,
        "etc/apt/keyrings/own.gpg": "key",
        "etc/apt/auth.conf": "machine mirror.example login user password secret",
        "var/lib/dpkg/status": "Package: bash\nStatus: install ok installed\nVersion: 5\nArchitecture: amd64\n",
        "var/lib/dpkg/info/format": "1\n",
        "var/lib/dpkg/info/bash.list": "/bin/bash\n",
        "var/lib/dpkg/info/bash.postinst": "secret",
        "var/lib/dpkg/statoverride": "root secret 755 /x\n",
        "usr/bin/apt-get": "",
        "usr/bin/bash": "",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_only_the_distributions_own_sources(fake: Path) -> None:
    key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
    assert list(packages.sources(fake)) == [
        "deb [signed-by=/etc/apt/keyrings/own.gpg] https://own.example/debian bookworm-security main",
        f"deb {key}http://deb.debian.org/debian bookworm main contrib",
        f"deb {key}http://deb.debian.org/debian bookworm-updates main contrib",
    ]


def test_the_image_has_what_apt_needs_and_no_secret(fake: Path, tmp_path: Path) -> None:
    wanted = host.plan(fake, id_base=None)
    host.build(wanted, tmp_path, id_base=None)
    root = tmp_path / "rootfs"
    assert (root / "var/lib/dpkg/info/bash.list").read_text() == "/bin/bash\n"
    assert (root / "var/lib/dpkg/info/format").read_text() == "1\n"
    assert (root / "etc/apt/keyrings/own.gpg").read_text() == "key"
    assert "Sandbox::User" in (root / "etc/apt/apt.conf.d/holdfast").read_text()
    assert (root / "opt/holdfast/bin/apt-get").stat().st_mode & 0o777 == 0o755
    assert not (root / "opt/holdfast/bin/apt").exists(), "the host has none"
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert "secret" not in path.read_text(), path


def test_another_package_makes_another_image(fake: Path) -> None:
    first = host.plan(fake, id_base=None).fingerprint
    assert host.plan(fake, id_base=None).fingerprint == first
    (fake / "var/lib/dpkg/status").write_text("Package: bash\n")
    assert host.plan(fake, id_base=None).fingerprint != first


def test_a_host_without_apt(fake: Path) -> None:
    (fake / "usr/bin/apt-get").unlink()
    assert packages.survey(fake) == packages.Packages()
