"""PID 1 in a sandbox reaps whatever is handed to it."""

from collections.abc import Iterator

import pytest

from support.api import Api
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.machine import processes_of, state_of

ORPHANS = """
import os, sys
for _ in range(200):
    if os.fork() == 0:
        for _ in range(2):
            if os.fork():
                os._exit(0)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def api(daemon: DaemonProcess) -> Iterator[Api]:
    with Api(daemon) as api:
        yield api


def zombies(api: Api, session_id: str) -> str:
    return api.out(session_id, "ps -eo stat= | grep -c ^Z || true")


@pytest.mark.parametrize(
    "make",
    [
        "python3 /workspace/orphans.py",
        "for i in $(seq 200); do (true &); done",
        "for i in $(seq 100); do (setsid true &); (sleep 0.1 & disown); done",
    ],
    ids=["double-forked", "subshells", "sessions"],
)
def test_no_zombie_stays(daemon: DaemonProcess, api: Api, make: str) -> None:
    session_id = str(api.create()["id"])
    try:
        api.write(session_id, "/workspace/orphans.py", ORPHANS)
        before = len(processes_of(daemon, session_id))
        assert api.exec(session_id, make)["exit_code"] == 0
        wait_for(lambda: zombies(api, session_id) == "0", "all orphans are reaped, as seen inside")
        wait_for(
            lambda: all(state_of(pid) != "Z" for pid in processes_of(daemon, session_id)),
            "all orphans are reaped, as seen from outside; the last of them may only be ending now",
        )
        wait_for(lambda: len(processes_of(daemon, session_id)) <= before + 1, "and nothing else is left of them")
    finally:
        api.destroy(session_id)


def test_a_zombie_with_a_living_parent_is_its_parents_business(api: Api) -> None:
    """The test can see zombies: this one stays, because whoever made it lives and does not look."""
    session_id = str(api.create()["id"])
    try:
        api.exec(session_id, "(python3 -c 'import os, time; os.fork() or os._exit(0); time.sleep(999)' &)")
        wait_for(lambda: zombies(api, session_id) == "1", "the zombie is seen")
        api.exec(session_id, "pkill python3")
        wait_for(lambda: zombies(api, session_id) == "0", "it is reaped once it is an orphan")
    finally:
        api.destroy(session_id)
