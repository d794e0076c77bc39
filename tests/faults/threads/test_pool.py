"""The warm pool of threads on real sandboxes, with a real agent up in them; and a daemon that is killed beside it."""

from pathlib import Path

from holdfast.sdk import SyncClient
from support.agents.installed import need_agent
from support.api import Api
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.machine import containers, init_pid, mounts

SETTINGS = {"pool": {"threads": 1}, "reap_interval_seconds": 0.5, "thread_retry_seconds": 0.1}


def pooled(daemon: DaemonProcess) -> str:
    """The one that waits, by the runtime and not by what the daemon says."""

    def full() -> bool:
        with Api(daemon) as api:
            return 'holdfast_pool_ready{image="threads"} 1.0' in api.http.get("/metrics").text

    wait_for(full, f"the pool is full:\n{daemon.tail()}")
    with Api(daemon) as api:
        [found] = set(containers(daemon)) - {session["id"] for session in api.sessions()}
    return found


def programs(daemon: DaemonProcess, session_id: str) -> set[int]:
    """What runs in a sandbox beside the runner and its shell, as the host numbers processes."""
    init = init_pid(daemon, session_id)
    space = Path(f"/proc/{init}/ns/pid").readlink()
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            inside = (process / "ns/pid").readlink() == space
            if inside and int(process.name) != init and not (process / "cmdline").read_bytes().startswith(b"bash\0"):
                found.add(int(process.name))
        except OSError:
            continue
    return found


def test_a_thread_takes_over_the_agent_that_waits(usable: None) -> None:
    need_agent("pi")
    with DaemonProcess(**SETTINGS, default_agent="pi") as daemon, SyncClient(daemon.url, daemon.key) as client:
        ready = pooled(daemon)
        up = programs(daemon, ready)
        assert up, "its agent runs before anybody has asked for it"
        reply = client.thread("dm:1").send("say kelp").result()
        assert (reply.reason, reply.text.strip()) == ("end_turn", "kelp")
        assert client.thread("dm:1").info().session_id == ready
        assert up <= programs(daemon, ready), "and was not started again"
        with Api(daemon) as api:
            assert api.out(ready, "ls -A /workspace") == "output", "nobody was here before"
        waits = pooled(daemon)
        daemon.restart()
        with SyncClient(daemon.url, daemon.key) as again:
            assert again.thread("dm:1").send("say still here").result().text.split() == ["still", "here"]
            assert again.thread("dm:1").info().session_id == ready
        pooled(daemon)
        assert waits not in containers(daemon), "what waited is gone, with its agent"
        assert not [mount for mount in mounts(str(daemon.state_dir)) if waits in mount]
