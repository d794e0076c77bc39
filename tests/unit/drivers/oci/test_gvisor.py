"""How runsc is called, by what a build says about itself; and what is removed of a container that has ended."""

from pathlib import Path

import pytest

from holdfast.drivers.oci.gvisor import describe, forget, gvisor_checks

OLD_FLAGS = "  -fsgofer-host-uds\n    \tallow the gofer to mount Unix domain sockets.\n  -network value\n"
NEW_FLAGS = "  -fsgofer-host-uds\n    \tDEPRECATED: use host-uds=all\n  -host-uds value\n  -overlay2 value\n"


def test_an_old_build() -> None:
    gvisor = describe("0.0~20220101.0", OLD_FLAGS, "  -image-path string\n")
    assert "--fsgofer-host-uds" in gvisor.options
    assert not [option for option in gvisor.options if option.startswith(("--host-uds", "--overlay2"))]
    assert gvisor.checkpoint_options == ()


def test_a_new_build() -> None:
    gvisor = describe("release-20240729.0", NEW_FLAGS, "  -compression value\n  -image-path string\n")
    assert {"--host-uds=open", "--overlay2=none"} < set(gvisor.options)
    assert "--fsgofer-host-uds" not in gvisor.options
    assert gvisor.checkpoint_options == ("--compression=none",)


def test_no_build_gives_a_network_or_leaves_seccomp_out() -> None:
    for flags in (OLD_FLAGS, NEW_FLAGS):
        assert {"--network=none", "--oci-seccomp"} < set(describe("1", flags, "").options)


@pytest.mark.parametrize(
    ("version", "warns"), [("0.0~20221219.0", True), ("0.0~20240729.0", False), ("release-20231009.0", False)]
)
def test_builds_in_which_ls_fails_are_told(version: str, warns: bool) -> None:
    checks = gvisor_checks(describe(version, NEW_FLAGS, ""), rootless=False)
    assert [check.ok for check in checks if check.name == "gVisor"] == ([False] if warns else [])
    assert not [check for check in checks if check.fatal and not check.ok]


def test_without_root_it_cannot_be_used() -> None:
    [check] = gvisor_checks(describe("0.0~20240729.0", NEW_FLAGS, ""), rootless=True)
    assert (check.ok, check.fatal) == (False, True)
    assert "root" in check.remedy


def test_only_the_containers_own_files_are_removed(tmp_path: Path) -> None:
    own = ["ses_1_sandbox:ses_1.state", "ses_1_sandbox:ses_1.lock", "runsc-ses_1.sock"]
    others = ["ses_12_sandbox:ses_12.state", "runsc-ses_12.sock", "xses_1_sandbox:ses_1.state"]
    for name in (*own, *others):
        (tmp_path / name).touch()
    assert forget(tmp_path, "ses_1")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)
    assert not forget(tmp_path, "ses_1")
