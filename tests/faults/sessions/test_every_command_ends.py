"""P2: a hundred commands that hang, kill and crash, in sandboxes side by side. Each one ends, and says how."""

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from support.api import Api, Json
from support.daemons.daemon import DaemonProcess
from support.machine.machine import assert_no_trace

TIMEOUT_MS = 1000
BOUND = 40.0
"""Seconds that a call may take at most: generous, and far below "for ever"."""
SESSIONS = 10
COMMANDS_EACH = 10

NASTY = (
    "sleep 1000",
    "cat",
    "read x; echo got $x",
    "while :; do :; done",
    "yes",
    "trap '' INT TERM HUP; sleep 1000",
    "trap '' INT TERM HUP; while :; do :; done",
    "(setsid sleep 1000 &); echo left one behind",
    "sleep 1000 & disown; echo another",
    "exec sleep 1000",
    "exec 0<&- 1>&- 2>&-; sleep 1",
    "exit 3",
    "kill -9 $$",
    "kill -STOP $$",
    "kill -9 -1",
    "kill -STOP -1",
    "kill -9 1; kill -TERM 1; echo could not",
    "python3 -c 'import os; os.abort()'",
    "python3 -c 'import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; time.sleep(999)'",
    ":(){ :|:& };:; sleep 1000",
    "head -c 400M /dev/zero | tail -c 400M | wc -c",
    "set -euo pipefail; false",
    'echo "never closed',
    "cat <<EOF\nno end",
    "coproc cat; sleep 1000",
    "mkfifo /tmp/f$RANDOM && cat /tmp/f*",
    "nohup sleep 1000 > /dev/null 2>&1 & wait",
    "ulimit -n 3; sleep 1000",
    "PATH=; sleep",
    "echo ok",
    "true",
)


def run(api: Api, rng: random.Random) -> list[str]:
    """One session's commands; a session that was lost is replaced. Returns how each command ended."""
    endings = []
    session_id = new_session(api)
    for _ in range(COMMANDS_EACH):
        cmd = rng.choice(NASTY)
        began = time.monotonic()
        response = api.try_exec(session_id, cmd, timeout_ms=TIMEOUT_MS)
        took = time.monotonic() - began
        assert took < BOUND, f"{cmd!r} took {took:.0f} s"
        assert response.status_code in (200, 409, 502), f"{cmd!r}: {response.text}"
        if response.status_code == 200:
            endings.append(ending(response.json()))
            continue
        endings.append(response.json()["error"]["code"])
        assert api.destroy(session_id).status_code == 204
        session_id = new_session(api)
    answers = api.exec(session_id, "PATH=/usr/bin:/bin; echo alive", timeout_ms=20_000)
    assert answers["stdout"] == "alive\n", answers
    assert api.destroy(session_id).status_code == 204
    return endings


def new_session(api: Api) -> str:
    return str(api.create(limits={"memory_mb": 128, "pids": 64})["id"])


def ending(result: Json) -> str:
    if result["timed_out"]:
        return "timed out"
    assert 0 <= result["exit_code"] <= 255, result
    return "exit code"


def test_every_command_ends(daemon: DaemonProcess) -> None:
    with Api(daemon, timeout=2 * BOUND) as api, ThreadPoolExecutor(SESSIONS) as pool:
        randoms = [random.Random(seed) for seed in range(SESSIONS)]
        endings = Counter(one for part in pool.map(lambda rng: run(api, rng), randoms) for one in part)
        assert sum(endings.values()) == SESSIONS * COMMANDS_EACH
        assert endings["timed out"] > 10 and endings["exit code"] > 10, endings
        assert endings["sandbox_lost"] + endings["wrong_state"] < 20, f"sandboxes die too easily: {endings}"
        assert api.sessions() == []
        assert_no_trace(daemon)
