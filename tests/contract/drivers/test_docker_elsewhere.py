"""The docker driver's suite once more: with ids that Docker remaps, and by a user who may only use Docker's socket.

Each run is a pytest of its own. Docker reads the list of subordinate ids when it starts, so with remapping all of it is
in a mount namespace where that list is what the test wants. The host sees none of it.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from contract.drivers.test_oci_elsewhere import AS_USER, USER, need_readable, subordinate_list
from support.servers.dockerd import Dockerd, unusable_dockerd

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

# What differs from the setting that runs the whole suite: ids and mounts.
SUITE = "answers or writable or nobody or setuid or reboot or host or resist or workspace_too"
USERS_SUITE = "answers or keeps or resist or who_commands or token_is or memory_is or destroyed or moment or too"

pytestmark = [
    pytest.mark.skipif(bool(unusable_dockerd()), reason=unusable_dockerd() or "none"),
    pytest.mark.timeout(900),
]


def run_suite(only: str, *, before: str = "true", prefix: str = "", **environment: str) -> str:
    """The docker driver's tests that ``only`` picks, in a mount namespace where ``before`` has been run."""
    files = [str(HERE / name) for name in ("test_docker.py", "test_docker_driver.py")]
    test = shlex.join([sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *files, "-k", only])
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", f"{before} && exec {prefix} {test}"],
        cwd=ROOT,
        env={**os.environ, "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    assert " passed" in done.stdout, f"no test ran:\n{done.stdout[-3000:]}"
    return done.stdout


def test_with_ids_that_docker_remaps(tmp_path: Path) -> None:
    lists = [subordinate_list(tmp_path, name, filled=True) for name in ("subuid", "subgid")]
    (tmp_path / "subgid").write_text("nobody:200000:65536\nnogroup:200000:65536\n")
    said = run_suite(SUITE, before=" && ".join(lists), TEST_DOCKERD_OPTIONS="--userns-remap=nobody:nogroup")
    assert "no user namespaces" not in said


def test_by_a_user_who_may_use_the_socket() -> None:
    need_readable(Path(sys.executable).resolve(), ROOT)
    dockerd = Dockerd("--group", str(USER))
    try:
        dockerd.start()
        run_suite(USERS_SUITE, prefix=AS_USER, TEST_DOCKER_HOST=dockerd.host)
    finally:
        dockerd.clean_up()
