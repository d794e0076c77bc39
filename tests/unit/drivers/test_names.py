"""The names of sandboxes on the machine: one for each state directory, and those that earlier versions gave."""

from pathlib import Path

from holdfast.drivers.names import MachineNames, machine_name, session_of

PROOF = "config.json"


def home_in(state_dir: Path, *session_ids: str) -> Path:
    for session_id in session_ids:
        (state_dir / "oci" / session_id).mkdir(parents=True)
    return state_dir / "oci"


def test_a_name_is_of_one_session_and_one_state_directory(tmp_path: Path) -> None:
    one, other = machine_name("ses_1", tmp_path / "a"), machine_name("ses_1", tmp_path / "b")
    assert one != other and one != machine_name("ses_2", tmp_path / "a")
    assert session_of(one) == session_of(other) == "ses_1"
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    assert machine_name("ses_1", tmp_path / "link") == one


def test_it_stays_when_the_state_directory_is_moved(tmp_path: Path) -> None:
    before = MachineNames(home_in(tmp_path / "a", "ses_1"), PROOF)
    name = before.note("ses_1")
    assert name == before.of("ses_1") == machine_name("ses_1", tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    after = MachineNames(tmp_path / "b" / "oci", PROOF)
    after.read()
    assert after.of("ses_1") == name
    assert after.of("ses_2") == machine_name("ses_2", tmp_path / "b")


def test_what_an_earlier_version_made_has_its_name(tmp_path: Path) -> None:
    home = home_in(tmp_path, "ses_old", "ses_half_made")
    (home / "ses_old" / PROOF).touch()
    names = MachineNames(home, PROOF)
    names.read()
    assert names.of("ses_old") == "ses_old"
    assert names.of("ses_half_made") == machine_name("ses_half_made", tmp_path)


def test_a_name_is_never_an_old_one_again(tmp_path: Path) -> None:
    """It could be that of a sandbox of another state directory."""
    home = home_in(tmp_path, "ses_1", "ses_2")
    (home / "ses_1" / PROOF).touch()
    names = MachineNames(home, PROOF)
    names.read()
    names.forget("ses_1")
    assert names.of("ses_1") == machine_name("ses_1", tmp_path)
    assert names.note("ses_2") == machine_name("ses_2", tmp_path)
    (home / "ses_2" / PROOF).touch()
    names.forget("ses_2")
    (home / "ses_2" / "name").unlink()  # as far as the daemon came before it was killed
    again = MachineNames(home, PROOF)
    again.read()
    assert [again.of(name) for name in ("ses_1", "ses_2")] == [
        machine_name(name, tmp_path) for name in ("ses_1", "ses_2")
    ]


def test_what_has_lost_its_directory_is_known_by_the_runtimes(tmp_path: Path) -> None:
    home, root = home_in(tmp_path), tmp_path / "oci" / "runtime"
    for name in ("ses_old", "ses_moved-123"):
        (root / name).mkdir(parents=True)
    (root / "ses_gvisor_sandbox:ses_gvisor.state").touch()
    names = MachineNames(home, PROOF)
    names.read(root)
    assert (names.of("ses_old"), names.of("ses_moved")) == ("ses_old", "ses_moved-123")
    assert names.of("ses_gvisor") == machine_name("ses_gvisor", tmp_path)
