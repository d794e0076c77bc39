"""The oci driver's suite once more, as others would run it: as an ordinary user, with crun, on a host with cgroup v2.

Each run is a pytest of its own in a mount namespace of its own, where the hierarchy of cgroups and the list of
subordinate ids are what the test wants. The host sees none of it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
USER = 65534  # nobody: exists everywhere and owns nothing
MOUNT_CGROUP_V2 = "mount -t cgroup2 none /sys/fs/cgroup"
AS_USER = f"setpriv --reuid {USER} --regid {USER} --clear-groups"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make mount namespaces and to become somebody else"),
    pytest.mark.timeout(900),
]


def run_suite(
    tmp_path: Path, runtime: str, *, as_user: bool, subordinate_ids: bool = False, cgroup_v2: bool, only: str
) -> None:
    """What ``only`` picks of ``test_oci.py`` with one runtime, in that setting; all of it with ``TEST_WHOLE_SUITE``."""
    if shutil.which(runtime) is None:
        pytest.skip(f"{runtime} is not installed; apt-get install {runtime}")
    if as_user:
        need_readable(Path(sys.executable).resolve(), ROOT)
    steps = [MOUNT_CGROUP_V2] if cgroup_v2 else []
    if as_user:
        steps += [subordinate_list(tmp_path, name, filled=subordinate_ids) for name in ("subuid", "subgid")]
    picked = runtime if "TEST_WHOLE_SUITE" in os.environ else f"{runtime} and ({only})"
    test = f"{sys.executable} -m pytest -q -p no:cacheprovider {HERE / 'test_oci.py'} -k '{picked}'"
    script = " && ".join([*steps, f"exec {AS_USER + ' ' if as_user else ''}{test}"])
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
        cwd=ROOT,
        env={**os.environ, "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    assert " passed" in done.stdout, f"no test ran:\n{done.stdout[-3000:]}"


def subordinate_list(scratch: Path, name: str, *, filled: bool) -> str:
    (scratch / name).write_text("nobody:200000:65536\n" if filled else "")
    return f"touch /etc/{name} && mount --bind {scratch / name} /etc/{name}"


def need_readable(*paths: Path) -> None:
    """Another user must be able to reach the interpreter and the tests."""
    for path in paths:
        closed = [parent for parent in (path, *path.parents) if not parent.stat().st_mode & 0o005]
        if closed:
            pytest.skip(f"{closed[0]} is closed to other users, so the tests cannot be run as one of them")


# What our own code does alone, and does the same way wherever it runs; test_oci.py has proved it.
SAME = (
    "handle or unknown or too_long or environment or conflict or at_once or check_says or deny or known_error or "
    "stats_of_nothing or no_stats or same_time or wrong_token or started_where or snapshotted or consumed or capability"
)
MOST = f"not ({SAME})"
# What our own code does on disks of its own, with root, whatever the runtime is. Ordinary users have no such disks.
DISKS = (
    "holds_the_workspace or one_sandboxs or leaves_its_workspace or workspace_has_a_limit or may_grow or part_of_it or "
    "can_be_repeated or complete_or_not or without_room or owners_modes"
)
# What our own runner does, whichever runtime has started it: files and commands over its link, rows of what there is.
RUNNERS = (
    "both_ways or daemon_is_away or token_of_its_own or shows_all_of_ours or state_directory or one_moment or "
    "has_the_files_and_the_sandbox or workspace_outlives or earlier_version"
)
# What differs from the settings that run most of the suite: ids, mounts, limits, and how things end.
DIFFERENT = "answers or writable or files or token or capabilit or limit or destroy or cancelled or owners or too"
# What two settings do together that were tried one by one: who is who, what is mounted, and how things end.
TOGETHER = (
    "answers or writable_root_can or nobody_outside or no_privileges or host_files or leaves_nothing or left_running"
)


def test_runc_as_an_ordinary_user(tmp_path: Path) -> None:
    run_suite(tmp_path, "runc", as_user=True, subordinate_ids=True, cgroup_v2=False, only=MOST)


def test_runc_as_an_ordinary_user_with_one_id(tmp_path: Path) -> None:
    run_suite(tmp_path, "runc", as_user=True, subordinate_ids=False, cgroup_v2=False, only=DIFFERENT)


def test_crun_on_cgroup_v2(tmp_path: Path) -> None:
    run_suite(tmp_path, "crun", as_user=False, cgroup_v2=True, only=f"{MOST} and not ({DISKS} or {RUNNERS})")


def test_crun_as_an_ordinary_user_on_cgroup_v2(tmp_path: Path) -> None:
    run_suite(tmp_path, "crun", as_user=True, subordinate_ids=True, cgroup_v2=True, only=TOGETHER)
