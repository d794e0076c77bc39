"""The ``host`` image, made from a small host of our own: what it shows, and above all what it never shows."""

import os
from pathlib import Path

import pytest

from holdfast.images.host import host
from unit.images.tars import ID_BASE, REQUIRED

MARKER = b"HOLDFAST-TEST-MARKER"


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A host with merged /usr, and a marker in every place that must stay hidden."""
    root = tmp_path / "fake-host"
    for path in ("usr/bin/bash", "usr/lib/os-release", "usr/share/ca-certificates/m/A.crt"):
        _write(root / path, b"public")
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
        (root / "usr" / name).mkdir(exist_ok=True)
    for path in (
        "root/key",
        "home/u/key",
        "var/lib/db",
        "opt/app/conf",
        "srv/data",
        "etc/some-service/password",
        "etc/shadow",
        "etc/passwd",
        "etc/environment",
        "etc/gitconfig",
        "etc/resolv.conf",
        "etc/hosts",
        "etc/skel/.profile",
        "etc/profile",
        "etc/ssl/private/key.pem",
        "etc/ssl/certs/server.pem",
        "etc/ssl/openssl.cnf",
        "etc/vim/other",
        "etc/java-17-openjdk/management/jmxremote.password",
        "etc/java-17-openjdk/security/server.jks",
        "usr/local/etc/service.conf",
    ):
        _write(root / path, MARKER)
    _write(root / "etc/timezone", MARKER, 0o640)
    _write(root / "etc/perl/closed/file", MARKER)
    (root / "etc/perl/closed").chmod(0o750)
    _write(root / "etc/perl/cert", b"-----BEGIN PRIVATE KEY-----" + MARKER)
    _write(root / "etc/mime.types", MARKER + bytes(9 << 20))
    (root / "etc/services").symlink_to("/root/key")
    (root / "etc/protocols").symlink_to("some-service/password")
    for path in ("etc/ld.so.cache", "etc/ssl/certs/ca-certificates.crt", "etc/ssl/certs/java/cacerts", "etc/vim/vimrc"):
        _write(root / path, b"public")
    _write(root / "etc/java-17-openjdk/security/java.security", b"public")
    (root / "etc/os-release").symlink_to("../usr/lib/os-release")
    (root / "etc/ssl/certs/A.pem").symlink_to("/usr/share/ca-certificates/m/A.crt")
    (root / "etc/ssl/certs/1234.0").symlink_to("A.pem")
    (root / "etc/alternatives").mkdir()
    (root / "etc/alternatives/awk").symlink_to("/usr/bin/mawk")
    return root


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def made(fake_host: Path, tmp_path: Path) -> tuple[host.HostPlan, Path]:
    plan = host.plan(fake_host, id_base=ID_BASE)
    place = tmp_path / plan.fingerprint
    place.mkdir()
    host.build(plan, place, id_base=ID_BASE)
    return plan, place / "rootfs"


def test_no_marker_is_reachable(fake: Path, tmp_path: Path) -> None:
    plan, root = made(fake, tmp_path)
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert MARKER not in path.read_bytes(), path
        assert "some-service" not in str(path)
        if path.is_symlink():
            assert "/root" not in str(path.readlink())
            assert "service/" not in str(path.readlink())
    assert plan.binds == {"/usr": fake / "usr"}
    assert plan.masked == ("/usr/local/etc",)
    for source in plan.binds.values():
        for path in source.rglob("*"):
            hidden = any(str(path).startswith(f"{fake}{masked}") for masked in plan.masked)
            assert hidden or not path.is_file() or MARKER not in path.read_bytes()


def test_shows_what_programs_need(fake: Path, tmp_path: Path) -> None:
    _, root = made(fake, tmp_path)
    for path in (
        "etc/ld.so.cache",
        "etc/ssl/certs/ca-certificates.crt",
        "etc/ssl/certs/java/cacerts",
        "etc/vim/vimrc",
        "etc/java-17-openjdk/security/java.security",
    ):
        assert (root / path).read_bytes() == b"public"
    links = {path: str((root / path).readlink()) for path in ("bin", "etc/os-release", "etc/ssl/certs/1234.0")}
    assert links == {"bin": "usr/bin", "etc/os-release": "../usr/lib/os-release", "etc/ssl/certs/1234.0": "A.pem"}
    assert (root / "etc/alternatives/awk").is_symlink()
    assert (root / "etc/passwd").read_text().splitlines()[1] == "sandbox:x:1000:1000:sandbox:/workspace:/bin/bash"
    for name in ("usr", *REQUIRED):
        assert (root / name).is_dir()
        assert name in ("etc", "var") or not list((root / name).iterdir())
    assert not (root / "etc/shadow").exists()
    if ID_BASE is not None:
        assert {path.lstat().st_uid for path in root.rglob("*")} == {ID_BASE, ID_BASE + 1000}


def test_a_host_without_merged_usr(fake: Path, tmp_path: Path) -> None:
    for name in ("bin", "lib"):
        (fake / name).unlink()
        (fake / name).mkdir()
    (fake / "lib64").unlink()
    (fake / "lib64").symlink_to("lib")
    plan, root = made(fake, tmp_path)
    assert plan.binds == {"/usr": fake / "usr", "/bin": fake / "bin", "/lib": fake / "lib"}
    assert (root / "bin").is_dir()
    assert not (root / "bin").is_symlink()
    assert (root / "lib64").readlink() == Path("lib")


def test_a_bundle_in_another_place(fake: Path, tmp_path: Path) -> None:
    (fake / "etc/ssl/certs/ca-certificates.crt").unlink()
    _write(fake / "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", b"other bundle")
    _, root = made(fake, tmp_path)
    assert (root / "etc/ssl/certs/ca-certificates.crt").read_bytes() == b"other bundle"
    assert not (root / "etc/pki").exists()


def test_the_fingerprint_follows_the_host(fake: Path) -> None:
    def now() -> str:
        return host.plan(fake, id_base=ID_BASE).fingerprint

    first = now()
    assert now() == first
    _write(fake / "etc/some-service/password", b"changed")
    _write(fake / "home/u/more", b"changed")
    assert now() == first
    os.utime(fake / "etc/ld.so.cache", (1, 1))
    second = now()
    (fake / "etc/alternatives/vi").symlink_to("/usr/bin/vim")
    third = now()
    assert len({first, second, third, host.plan(fake, id_base=7).fingerprint}) == 4
